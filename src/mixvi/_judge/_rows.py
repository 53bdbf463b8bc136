"""What the choice of rows adds to what draws say: noise of the bound, and a word on it."""

import dataclasses
import math

import numpy as np

from .._density._batches import Batches
from .._density._protocol import Matrix, coloured
from ._diagnosis import Estimate
from ._fresh import Judged, fresh_draws
from ._verdict import REJECT, TRUST, WEIGH, Reason, Verdict

# Nats by which a bound may be uncertain for want of rows.
MOST_ROW_NOISE = 0.1
# Draws over which the batches are compared.
COMPARED = 128


def row_noise(batches: Batches, mean: np.ndarray, root: Matrix, key: object, n: int) -> float:
    """The standard error of the bound, the draws held: from batch to batch it varies with the rows
    alone."""
    points = coloured(mean, root, fresh_draws(key, n, len(mean))[:COMPARED])
    each = np.array([values.mean() for values in batches.asked(lambda one: one.values(points))])
    return float(each.std(ddof=1) / math.sqrt(len(each)))


def with_noise(judged: Judged, noise: float) -> Judged:
    """The bound's standard error with that of the rows."""
    diagnosis = judged.diagnosis
    elbo = Estimate(diagnosis.elbo.value, math.hypot(diagnosis.elbo.se, noise))
    return dataclasses.replace(judged, diagnosis=dataclasses.replace(diagnosis, elbo=elbo))


def judged_by_rows(verdict: Verdict, noise: float, one_mode: bool) -> Verdict:
    """What draws said, and how sure that is. `one_mode`: there can be no other."""
    if verdict.level is None:
        return verdict
    also = f" Mini-batches: the bound is known to ± {noise:.2g} nat for the choice of rows."
    if not one_mode:
        also += " Other modes were not looked for."
    if noise <= MOST_ROW_NOISE:
        return dataclasses.replace(verdict, sentence=verdict.sentence + also)
    said = (
        f"the choice of rows alone leaves the bound uncertain by ± {noise:.2g} nat; a larger "
        "minibatch= would mend that, or exact passes"
    )
    reason = Reason("rows", WEIGH, None, noise, MOST_ROW_NOISE, said)
    reasons = (*verdict.reasons, reason)
    if verdict.level == TRUST:
        return Verdict(WEIGH, reasons, f"Use with care: {said}.{also}")
    assert verdict.level in (WEIGH, REJECT)
    return Verdict(verdict.level, reasons, f"{verdict.sentence.rstrip('.')}; also, {said}.{also}")
