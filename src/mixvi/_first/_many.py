"""Many problems side by side: on an accelerator, or with hyperparameters."""

import dataclasses
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from .._fit._many import Batch
from .._target import precision_scope
from ._flow import forget_if_many, together
from ._options import of_first_engine
from ._outcome import Outcome
from ._restarts import flow, solve

BLOCK = 32


def by_first_engine(
    batch: Batch, how: str, workers: int, report: Callable[[int], None]
) -> list[Outcome]:
    """All at once on an accelerator; on a CPU blocks of equal size, a thread for each core."""
    options, fixed, starts, n = (
        of_first_engine(batch.options),
        batch.fixed,
        batch.starts,
        len(batch),
    )
    if how == "loop":
        outcomes = []
        for i, start in enumerate(starts):
            outcomes.append(solve(batch.part(i), start, options, fixed))
            report(1)
        return outcomes
    size = n if how == "vmap" else min(BLOCK, math.ceil(n / workers))
    if how == "vmap":
        memory = max(2**20, options.memory // n)
        options = dataclasses.replace(options, memory=memory, hasty=True)

    def one_block(first: int) -> list[Outcome]:
        # The last block is filled up with its last problem, so that all have one shape.
        index = np.minimum(np.arange(first, first + size), n - 1)
        forget_if_many()
        with precision_scope(options.dtype):
            block = batch.part(index)
            block = dataclasses.replace(block, data=jax.device_put(block.data))
            flows = [
                flow(batch.part(i), starts[i], options, fixed)
                for i in range(first, min(first + size, n))
            ]
            return together(flows, block, size, how, report)

    firsts = list(range(0, n, size))
    # The first block compiles; the others find compiled code.
    done = [one_block(firsts[0])]
    with ThreadPoolExecutor(workers) as pool:
        done += pool.map(one_block, firsts[1:])
    return [outcome for block in done for outcome in block]
