"""The experiments of Mixed Variational Inference (Gianniotis 2019), run again, with every table.

`python -m reproduction all` runs them, `python -m reproduction report` writes the page. This is no
part of the installed package.
"""
