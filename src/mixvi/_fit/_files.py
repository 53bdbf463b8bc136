"""Posteriors in files: arrays and names, which need no model and run no code."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from .._approximate._laplace import CurvatureReport
from .._density._constraints import kinds_from, kinds_to
from .._density._structure import flatten
from .._judge._fresh import Judged
from .._judge._verdict import Diagnosis, Elsewhere, Estimate, Moments, OtherMode
from .._law import _store
from .._law._gaussian import Gaussian
from ._hyper import HyperReport
from ._stats import Stats


def read(path: str | Path) -> dict[str, Any]:
    """The fields of a Posterior that `written` wrote."""
    header, arrays = _store.read(path)
    judged = None
    if header["diagnosis"] is not None:
        fields = dict(header["diagnosis"])
        elbo, moments, wider = (fields.pop(name) for name in ("elbo", "moments", "wider"))
        diagnosis = Diagnosis(
            elbo=Estimate(**elbo),
            moments=Moments(**moments),
            wider=wider and Moments(**wider),
            **fields,
        )
        judged = Judged(diagnosis, arrays["z"], arrays["log_p"], arrays["log_q"])
    plain = (
        "family",
        "log_evidence_laplace",
        "elbo_fixed",
        "converged",
        "status",
        "verdict",
    )
    hyper = None
    if (fields := header["hyper"]) is not None:
        structure = _store.structure_from(fields.pop("structure"))
        parts = (structure.unravel(arrays[name]) for name in ("hyper", "hyper_gradient"))
        hyper = HyperReport(*parts, ran_off=tuple(fields.pop("ran_off")), **fields)
    structure, constraints = _store.structure_from(header["structure"]), None
    if (kinds := header.get("constraints")) is not None:
        constraints = kinds_from(structure, kinds)
        structure = constraints.free
    # Version 0.1.0 called it otherwise.
    tail_share = header.get("tail_share", header.get("beyond", 0.0))
    return dict(
        hyper_report=hyper,
        structure=structure,
        constraints=constraints,
        law=Gaussian(arrays["mean"], arrays["root"]),
        mode=arrays["mode"],
        flat_mean_se=arrays.get("mean_se"),
        judged=judged,
        elsewhere=Elsewhere(tuple(OtherMode(**m) for m in header["modes"]), tail_share),
        hessian=CurvatureReport(**header["curvature"]),
        stats=Stats.from_file(header["stats"]),
        **{name: header[name] for name in plain},
    )


def written(post: Any, path: str | Path) -> Path:
    return _store.write(path, *_to_store(post))


def _to_store(post: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = {
        "family": post.family,
        "log_evidence_laplace": post.log_evidence_laplace,
        "elbo_fixed": post.elbo_fixed,
        "converged": post.converged,
        "status": post.status,
        "verdict": post.verdict,
        "stats": dataclasses.asdict(post.stats),
        "curvature": dataclasses.asdict(post.curvature),
        "modes": [dataclasses.asdict(mode) for mode in post.elsewhere.modes],
        "tail_share": post.elsewhere.tail_share,
        "diagnosis": dataclasses.asdict(post.judged.diagnosis) if post.judged else None,
        "structure": _store.structure_to(post._shown),
        "constraints": post.constraints and kinds_to(post.constraints),
        "hyper": None,
    }
    arrays = {"mean": post.flat_mean, "root": post.root, "mode": post.mode}
    if post.flat_mean_se is not None:
        arrays["mean_se"] = post.flat_mean_se
    if (report := post.hyper_report) is not None:
        structure, values = flatten(report.values, np.dtype(np.float64), "hyper")
        gradient = structure.ravel(report.gradient, "gradient")
        arrays |= {"hyper": values, "hyper_gradient": gradient}
        header["hyper"] = {
            "structure": _store.structure_to(structure),
            "ran_off": report.ran_off,
            "n_passes": report.n_passes,
            "converged": report.converged,
            "at_edge": report.at_edge,
        }
    if post.judged:
        arrays |= {"z": post.judged.z, "log_p": post.judged.log_p, "log_q": post.judged.log_q}
    return header, arrays
