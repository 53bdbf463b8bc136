"""The end of a fit of many parameters: a Posterior whose root has a structure, or none."""

import math

import numpy as np

from .._approximate._laplace import CurvatureReport
from .._density._target import Target
from .._errors import MixviError
from .._judge._diagnosis import Elsewhere
from .._judge._fresh import Judged
from .._judge._many_parameters import judge_many
from .._judge._verdict import REJECT, Reason, Subject, Verdict
from .._law._gaussian import Gaussian
from ._hyper import HyperReport
from ._options import Options
from ._outcome import Outcome
from ._posterior import Posterior
from ._stats import Stats


def ended_posterior(
    target: Target,
    gaussian: Gaussian,
    subject: Subject,
    judged: Judged | None,
    one_mode: bool,
    status: str,
    stats: Stats,
    *,
    mode: np.ndarray,
    log_density: float,
    log_evidence_laplace: float,
    decrement: float,
    hyper_report: HyperReport | None = None,
) -> Posterior:
    diagnosis = None if judged is None else judged.diagnosis
    return Posterior(
        structure=target.structure,
        family=subject.family,
        law=gaussian,
        mode=mode,
        log_evidence_laplace=log_evidence_laplace,
        elbo_fixed=subject.elbo_fixed,
        flat_mean_se=None,
        judged=judged,
        elsewhere=Elsewhere(log_density=log_density, point=mode),
        converged=subject.converged,
        hyper_report=hyper_report,
        status=status,
        judgement=judge_many(subject, gaussian.dim, diagnosis, one_mode),
        stats=stats,
        hessian=CurvatureReport(math.nan, math.nan, decrement, 0),
    )


def failed_posterior(
    target: Target,
    options: Options,
    point: np.ndarray,
    decrement: float,
    error: MixviError,
    hyper: HyperReport | None = None,
    n_steps: int = 0,
) -> Outcome:
    """Vectors of NaNs, and nothing larger."""
    status = str(error)[0].upper() + str(error)[1:]
    reason = Reason("failed", REJECT, None, math.nan, math.nan, status)
    nothing = np.full(len(point), np.nan)
    key = options.key
    post = Posterior(
        structure=target.structure,
        family=options.family_name,
        law=Gaussian(nothing, nothing),
        mode=point,
        log_evidence_laplace=math.nan,
        elbo_fixed=None if options.richest is None else math.nan,
        flat_mean_se=None,
        judged=None,
        elsewhere=Elsewhere(),
        converged=False,
        hyper_report=hyper,
        status=status,
        judgement=Verdict(REJECT, (reason,), f"No Gaussian: {status}"),
        stats=Stats(n_steps, key if isinstance(key, int) else str(key)),
        hessian=CurvatureReport(math.nan, math.nan, decrement, 0),
    )
    return post, error
