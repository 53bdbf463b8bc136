"""How the search over hyperparameters ended."""

import dataclasses

from jaxtyping import PyTree


@dataclasses.dataclass(frozen=True)
class HyperReport:
    """How the search over the hyperparameters ended.

    `values`: the learnt hyperparameters, shaped like `hyper`. `gradient`: of what was maximised
    (Laplace's evidence, or the bound of a family), likewise. `ran_off`: the names of those that the
    data do not bound. `n_passes`: evaluations of the evidence and its gradient. `at_edge`: the
    search over Laplace's evidence ended where its Hessian becomes nearly singular.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def log_density(w, log_alpha, y):  # y ~ N(w, 1), w ~ N(0, 1/alpha)
    ...     return (-0.5 * (y - w) ** 2 - 0.5 * jnp.exp(log_alpha) * w**2 + 0.5 * log_alpha).sum()
    >>> y = np.array([2.0, -1.0, 3.0, 0.5])
    >>> report = mixvi.laplace(log_density, np.zeros(4), y, hyper=0.0).hyper_report
    >>> report.converged, report.ran_off, round(float(np.exp(-report.values)), 2)
    (True, (), 2.56)
    """

    values: PyTree
    gradient: PyTree
    ran_off: tuple[str, ...]
    n_passes: int
    converged: bool
    at_edge: bool

    @property
    def sentence(self) -> str:
        """What the status has to say of it; nothing when all went well."""
        said = ""
        if self.at_edge and not self.converged:
            said += (
                " The search over the hyperparameters stopped where the Hessian becomes nearly "
                "singular and Laplace's evidence grows without meaning; a family's bound does not."
            )
        elif not self.converged:
            said += " The search over the hyperparameters stopped before it converged."
        if self.ran_off:
            said += (
                f" Ran off: {', '.join(self.ran_off)} (the evidence hardly changes with it there: "
                "give it a prior, or another start)."
            )
        return said
