"""From a density to a Gaussian: the mode, families, the bound, searches. Plain array code."""
