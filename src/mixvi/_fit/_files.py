"""Posteriors in files: arrays and names, which need no model and run no code."""

import dataclasses
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from .._approximate._laplace import CurvatureReport
from .._density._constraints import kinds_from, kinds_to
from .._density._structure import flatten
from .._judge._diagnosis import Diagnosis, Elsewhere, Estimate, Moments, OtherMode, SymmetrySeen
from .._judge._fresh import Judged
from .._judge._verdict import REJECT, TRUST, WEIGH, Reason, Verdict
from .._law import _store
from .._law._surface import Surface
from ._hyper import HyperReport
from ._hyper_posterior import HyperPosterior
from ._stats import Stats


def read(path: str | Path) -> dict[str, Any]:
    """The fields of a Posterior that `written` wrote."""
    return _fields(*_store.read(path))


def read_from(file: BufferedIOBase, name: str) -> dict[str, Any]:
    """The same of an open file, `name` by name."""
    return _fields(*_store.read_from(file, name))


def _fields(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    judged = None
    if header["diagnosis"] is not None:
        judged = Judged(
            _diagnosis(header["diagnosis"]), arrays["z"], arrays["log_p"], arrays["log_q"]
        )
    plain = ("family", "log_evidence_laplace", "elbo_fixed", "converged", "status")
    hyper = None
    if (fields := header["hyper"]) is not None:
        structure = _store.structure_from(fields.pop("structure"))
        parts = (structure.unravel(arrays[name]) for name in ("hyper", "hyper_gradient"))
        hyper = HyperReport(*parts, ran_off=tuple(fields.pop("ran_off")), **fields)
    structure, constraints = _store.structure_from(header["structure"]), None
    if (kinds := header.get("constraints")) is not None:
        constraints = kinds_from(structure, kinds)
        structure = constraints.free
    return dict(
        hyper_report=hyper,
        hyper_posterior=_hyper_posterior(header, arrays),
        structure=structure,
        constraints=constraints,
        law=_store.law_from(header, arrays),
        mode=arrays["mode"],
        flat_mean_se=arrays.get("mean_se"),
        judged=judged,
        elsewhere=_elsewhere(header, arrays),
        judgement=_judgement(header),
        hessian=CurvatureReport(**header["curvature"]),
        stats=Stats.from_file(header["stats"]),
        **{name: header[name] for name in plain},
    )


def _diagnosis(fields: dict[str, Any]) -> Diagnosis:
    """Of this version or an earlier one, which had other moments."""
    fields = dict(fields)
    elbo, moments = Estimate(**fields.pop("elbo")), fields.pop("moments")
    if "wider" in fields:
        del fields["wider"]
        moments = None
    return Diagnosis(elbo=elbo, moments=moments and Moments(**moments), **fields)


def _elsewhere(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Elsewhere:
    if "elsewhere" not in header:
        # Earlier versions knew distances and shares.
        modes = tuple(OtherMode(**mode) for mode in header["modes"])
        tail_share = header.get("tail_share", header.get("beyond", 0.0))
        return Elsewhere(modes, len(modes), float(sum(one.share for one in modes)), tail_share)
    fields, points = dict(header["elsewhere"]), arrays.get("mode_points", ())
    fields["point"] = arrays.get("own_mode")
    modes = [
        OtherMode(**{**one, "relation": tuple(one["relation"])}, point=point)
        for one, point in zip(fields.pop("modes"), points, strict=True)
    ]
    seen = [
        SymmetrySeen(**{**one, "names": tuple(one["names"])}) for one in fields.pop("symmetries")
    ]
    return Elsewhere(modes=tuple(modes), symmetries=tuple(seen), **fields)


def _judgement(header: dict[str, Any]) -> Verdict:
    if "reasons" not in header:
        first = header["verdict"].split()[0]
        level = {"Trust:": TRUST, "Use": WEIGH, "Not": None}.get(first, REJECT)
        return Verdict(level, (), header["verdict"])
    reasons = tuple(Reason(**one) for one in header["reasons"])
    return Verdict(header["trust"], reasons, header["verdict"])


def written(post: Any, path: str | Path) -> Path:
    return _store.write(path, *_to_store(post))


def write_to(file: BufferedIOBase, post: Any) -> None:
    _store.write_to(file, *_to_store(post))


def _to_store(post: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = {
        "family": post.family,
        "log_evidence_laplace": post.log_evidence_laplace,
        "elbo_fixed": post.elbo_fixed,
        "converged": post.converged,
        "status": post.status,
        "verdict": post.verdict,
        "trust": post.trust,
        "reasons": [dataclasses.asdict(reason) for reason in post.reasons],
        "stats": dataclasses.asdict(post.stats),
        "curvature": dataclasses.asdict(post.curvature),
        "elsewhere": _elsewhere_to(post.elsewhere),
        "diagnosis": dataclasses.asdict(post.judged.diagnosis) if post.judged else None,
        "structure": _store.structure_to(post._shown),
        "constraints": post.constraints and kinds_to(post.constraints),
        "hyper": None,
    }
    of_law, arrays = _store.law_to(post.law)
    header |= of_law
    arrays["mode"] = post.mode
    if post.elsewhere.point is not None:
        arrays["own_mode"] = post.elsewhere.point
    if post.elsewhere.modes and post.elsewhere.modes[0].point is not None:
        arrays["mode_points"] = np.stack([mode.point for mode in post.elsewhere.modes])
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
    if (found := post.hyper_posterior) is not None:
        header["hyper_posterior"], own = _hyper_posterior_to(found)
        arrays |= own
    if post.judged:
        arrays |= {"z": post.judged.z, "log_p": post.judged.log_p, "log_q": post.judged.log_q}
    return header, arrays


def _elsewhere_to(elsewhere: Elsewhere) -> dict[str, Any]:
    """Points of modes are arrays, and go apart."""
    fields = dataclasses.asdict(elsewhere)
    del fields["point"]
    for mode in fields["modes"]:
        del mode["point"]
    return fields


# --- hyperparameters that were integrated --------------------------------------------------------

_PLAIN = (
    *("open_names", "n_lost", "n_evaluations", "largest_ratio", "halves_differ", "steepness"),
    "ended_early",
)
_AT_POINTS = ("points", "weights", "log_evidence", "log_mass", "log_prior")
_SURFACE = ("centre", "basis", "scales", "z", "values")


def _hyper_posterior_to(found: HyperPosterior) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = {name: getattr(found, name) for name in _PLAIN}
    header |= {"structure": _store.structure_to(found.structure), "step": found.surface.step}
    arrays = {f"hyper.{name}": getattr(found, name) for name in _AT_POINTS}
    arrays |= {f"surface.{name}": getattr(found.surface, name) for name in _SURFACE}
    if found.surface.slopes is not None:
        arrays["surface.slopes"] = found.surface.slopes
    return header, arrays


def _hyper_posterior(
    header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> HyperPosterior | None:
    if (stored := header.get("hyper_posterior")) is None:
        return None
    fields = dict(stored)
    structure = _store.structure_from(fields.pop("structure"))
    of_surface = {name: arrays[f"surface.{name}"] for name in _SURFACE}
    slopes, step = arrays.get("surface.slopes"), fields.pop("step")  # earlier ones had none
    surface = Surface(names=structure.names, step=step, slopes=slopes, **of_surface)
    at_points = {name: arrays[f"hyper.{name}"] for name in _AT_POINTS}
    fields["open_names"] = tuple(fields["open_names"])
    return HyperPosterior(structure=structure, surface=surface, **at_points, **fields)
