"""The experiments of Mixed Variational Inference (Gianniotis 2019), run again: every table and figure.

`python -m reproduction all` runs them, `python -m reproduction report` writes the page. This is no part
of the installed package.
"""
