"""The paper's experiments: Mixed Variational Inference (Gianniotis 2019), every table and figure.

`mixvi paper all` runs them, `mixvi paper report` writes the page. Nothing of the core imports this.
"""
