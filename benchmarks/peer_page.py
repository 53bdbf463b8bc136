"""The page and the picture of `peers.py`, from rows alone."""

import math
import os
import pathlib
import platform
import statistics
from importlib import metadata
from typing import Any

from first_call import table

FIGURE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "figures" / "peers.png"
YARDSTICK, OURS, EXACT = "SciPy Laplace", "mixvi fit", "nutpie (NUTS)"
LIBRARIES = ("jax", "numpyro", "blackjax", "optax", "pymc", "pytensor")
LIBRARIES += ("pymc-extras", "gsmvi", "nutpie")
# The lowest height of the picture; a bound with a larger error says nothing of as good.
FLOOR, UNSETTLED, NEAR = 1e-3, 0.05, 0.1
Rows = list[dict[str, Any]]

INTRO = """\
Every peer gets the same log density, a JAX function of unbounded parameters in float64, and the
start that comes with the posterior; how each is used is in `peer_jax.py` and `peer_others.py`. The
judge is the bound on fresh draws: **short** is what it falls short, in nats, of the best Gaussian
that anything found, here or in [hard posteriors](../hard.md). **As good**: within two standard
errors of the best, where these are below 0.05. Times are CPU seconds, one core, one process a fit,
imports apart; **first** includes all compilation, **warm** is a second call in the same process.
Both are given as multiples of a Laplace approximation driven by SciPy in the same run.

- Who returns draws, not a Gaussian (the two Pathfinders with several paths), is judged by the
  Gaussian with the mean and covariance of {draws} draws. NUTS (four chains, one after
  the other) is not judged: it is the price of exactness.
- PyMC has the density as a `Potential` around a JAX operator (`pytensor.wrap_jax`), which costs a
  call from Python for every gradient; PyTensor's cache of compiled C code is kept between fits,
  which spares PyMC some seconds that a new machine would see.
- NumPyro's steps are compiled as one program, so that its warm calls compile nothing; `svi.run` as
  it stands compiles again at every call.
- Everyone has one core. With two, BlackJAX's several paths hung once, for ever, in XLA's thread
  pool: they factorise matrices under `vmap`.
- Of PyMC's optimisers Adam at 0.01 is used. At the default the exactly Gaussian target ends 26 and
  178 nats short, at 0.001 a little nearer than at 0.01 (mean field, full rank; 10,000 steps).
- `raw_units` is in raw units on purpose: whoever steps by plain gradients would be told by their
  authors to standardise the columns first.
- BaM is not on the package index: it is the ten lines of the paper's update, in `peer_others.py`.
- A fit over {limit:.0f} CPU seconds is ended; where the first call took more than {slow:.0f} s no
  warm one is made, and the first time stands for it."""


# --- what the rows say ----------------------------------------------------------------------------


def best_of(fits: Rows) -> dict[str, tuple[float, float]]:
    """The highest bound of a Gaussian, and its error, for each posterior."""
    from peers import kept_best

    found: dict[str, list[tuple[float, float]]] = {}
    for one in fits:
        if one.get("elbo") is not None and one["kind"] != "Flow":
            found.setdefault(one["name"], []).append((one["elbo"], one["se"]))
    names = dict.fromkeys(one["name"] for one in fits)
    both = {name: [*found.get(name, []), kept_best(name)] for name in names}
    return {name: max(bound for bound in both[name] if math.isfinite(bound[0])) for name in names}


def compared(fits: Rows) -> Rows:
    """The rows with `short`, its error, `good`, and times as multiples of the yardstick's."""
    best = best_of(fits)
    under = {one["name"]: one for one in fits if one["tool"] == YARDSTICK}
    made = []
    for one in fits:
        more: dict[str, Any] = {"short": math.inf, "error": math.nan, "good": False}
        if one.get("elbo") is not None:
            short, error = best[one["name"]][0] - one["elbo"], best[one["name"]][1]
            error = math.hypot(one["se"], error) if short else 0.0
            good = short <= 2 * error and error <= UNSETTLED
            more = {"short": short, "error": error, "good": good}
        base = under.get(one["name"], {})
        first, warm = one.get("first"), one.get("warm", one.get("first"))
        for key, value in (("first", first), ("warm", warm)):
            if value is not None and base.get(key):
                more[f"{key}_x"] = value / base[key]
        made.append(one | more)
    return made


def middle(values: list[float]) -> float:
    """The median; failures are infinite, so no mean of two."""
    return statistics.median_low(sorted(values)) if values else math.nan


def number(value: float) -> str:
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "none"
    if abs(value) >= 9999.5:
        digits, power = f"{value:.0e}".split("e")
        return f"{digits}e{int(power)}"
    return (
        f"{value:.3f}" if abs(value) < 1 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    )


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 10 else f"{value:.0f}"


# --- tables ---------------------------------------------------------------------------------------


def common(fits: Rows) -> list[str]:
    """The posteriors that everyone has been tried on who has been tried on most of them."""
    names = list(dict.fromkeys(one["name"] for one in fits))
    there = {(one["name"], one["tool"]) for one in fits if not left_out(one)}
    tools = dict.fromkeys(tool for _, tool in there)
    most = [t for t in tools if 2 * sum((name, t) in there for name in names) > len(names)]
    return [name for name in names if all((name, tool) in there for tool in most)]


def summary(fits: Rows) -> str:
    lines = []
    for tool in dict.fromkeys(one["tool"] for one in fits):
        some = [one for one in fits if one["tool"] == tool and not left_out(one)]
        if not some:
            continue

        def mid(key: str, some: Rows = some) -> float:
            return middle([one[key] for one in some if one.get(key) is not None])

        exact = tool == EXACT
        lost = sum("failed" in one or not (exact or math.isfinite(one["short"])) for one in some)
        good = sum(one["good"] for one in some)
        near = sum(one["short"] < NEAR for one in some)
        of = f"of {len(some)}"
        said = (
            ["exact", "-", "-"] if exact else [number(mid("short")), f"{good} {of}", f"{near} {of}"]
        )
        line = [f"**{tool}**" if tool == OURS else tool, len(some), lost, *said]
        line += [times(mid("first_x")), times(mid("warm_x")), f"{mid('first'):.1f}"]
        lines.append([*line, f"{mid('mean_off'):.2f}", f"{mid('sd_off'):.2f}"])
    head = ["peer", "posteriors", "no answer", "median short, nat", "as good"]
    head += [f"within {NEAR} nat", "first, x"]
    return table([*head, "warm, x", "first, s", "mean off, sd", "sd off, times"], lines)


def in_words(fits: Rows) -> str:
    """Who is as good as the best how often, over all that has been measured."""
    counts: dict[str, list[bool]] = {}
    for one in fits:
        if one["tool"] != EXACT and not left_out(one):
            counts.setdefault(one["tool"], []).append(one["good"])
    ranked = sorted(counts.items(), key=lambda item: -sum(item[1]) / len(item[1]))
    said = ", ".join(f"{tool} on {sum(good)} of {len(good)}" for tool, good in ranked if any(good))
    never = ", ".join(tool for tool, good in ranked if not any(good))
    return f"As good as the best Gaussian: {said}" + (f"; on none: {never}." if never else ".")


def left_out(one: dict) -> bool:
    return "left out" in one.get("failed", "")


def cell(one: dict | None) -> str:
    if one is None or left_out(one):
        return ""
    if "failed" in one:
        return "over time" if one["failed"].startswith("over") else "failed"
    if one["tool"] == EXACT:
        return "exact"
    if not math.isfinite(one["short"]):
        return "none"
    if one["error"] < max(0.0005, 0.02 * one["short"]):
        said = number(one["short"])
    else:
        said = f"{number(one['short'])} ± {number(one['error'])}"
    return f"**{said}**" if one["good"] else said


def clock(one: dict | None) -> str:
    if one is None or "first_x" not in one:
        return ""
    return f"{times(one['first_x'])} / {times(one.get('warm_x'))}"


def matrix(fits: Rows, shown: Any) -> str:
    """A line for each posterior, a column for each peer."""
    at = {(one["name"], one["tool"]): one for one in fits}
    names = dict.fromkeys(one["name"] for one in fits)
    tools = list(dict.fromkeys(one["tool"] for one in fits))
    lines = []
    for name in names:
        dim = max(one.get("dim", 0) for one in fits if one["name"] == name)
        lines.append([f"{name} ({dim})", *(shown(at.get((name, tool))) for tool in tools)])
    return table(["posterior (D)", *tools], lines)


def beaten(fits: Rows) -> str:
    """Where a peer's bound is above ours by more than two standard errors."""
    ours = {one["name"]: one for one in fits if one["tool"] == OURS}
    lines = []
    for one in fits:
        mine = ours.get(one["name"])
        if mine is None or one["tool"] == OURS or not math.isfinite(one["short"]):
            continue
        by, error = mine["short"] - one["short"], math.hypot(one["se"], mine["se"] or 0.0)
        if by > 2 * error and by > 1e-6:
            said = f"{one['tool']} on {one['name']}, by {number(by)} ± {number(error)} nat"
            lines.append(f"- {said}, {times(one.get('first_x'))} times the yardstick's first call")
    return "\n".join(lines) or "No peer, on any posterior."


def faster(fits: Rows) -> str:
    """Where a peer is as good as ours, and sooner."""
    ours = {one["name"]: one for one in fits if one["tool"] == OURS}
    lines = []
    for tool in dict.fromkeys(one["tool"] for one in fits):
        counts = {"first": [], "warm": []}
        for one in fits:
            mine = ours.get(one["name"])
            if one["tool"] in (tool,) and tool not in (OURS, EXACT) and mine and one["good"]:
                for key, names in counts.items():
                    if one.get(f"{key}_x", math.inf) < mine.get(f"{key}_x", 0.0):
                        names.append(one["name"])
        if any(counts.values()):
            said = "; ".join(
                f"{key} call: {', '.join(names)}" for key, names in counts.items() if names
            )
            lines.append(f"- {tool}: {said}")
    return "\n".join(lines) or "No peer, on any posterior."


def failures(fits: Rows) -> str:
    lines = [
        f"- {one['tool']} on {one['name']}: {one['failed']}"
        for one in fits
        if "failed" in one and not left_out(one)
    ]
    return "\n".join(lines).replace("|", "/") or "None."


def missing(fits: Rows) -> str:
    from peer_tools import TOOLS
    from peers import TARGETS

    there = {(one["name"], one["tool"]) for one in fits}
    lines = []
    for name in TARGETS:
        lacking = [tool for tool in TOOLS if (name, tool) not in there]
        lacking += [one["tool"] for one in fits if one["name"] == name and left_out(one)]
        if len(lacking) == len(TOOLS):
            lines.append(f"- {name}: all")
        elif lacking:
            lines.append(f"- {name}: {', '.join(lacking)}")
    return "\n".join(lines) or "Nothing."


def defects(cases: Rows) -> str:
    lines = [
        [one["tool"], one["title"], one["said"], "yes" if one["holds"] else "no"] for one in cases
    ]
    return table(["version", "what", "seen", "there"], lines)


def page(all_rows: Rows) -> str:
    from peer_jax import N_DRAWS
    from peers import LIMIT, SLOW

    cases = [one for one in all_rows if one["name"] == "defect"]
    fits = compared([one for one in all_rows if one["name"] != "defect"])
    if not fits:
        return "Nothing has been measured."
    fits = in_order(fits)
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    parts = [INTRO.format(draws=N_DRAWS, limit=LIMIT, slow=SLOW)]
    parts += [
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores shared "
        f"with other work; {versions}."
    ]
    parts += ["![What each peer's Gaussian falls short, against its time](../../figures/peers.png)"]
    shared = [one for one in fits if one["name"] in common(fits)]
    picture(shared)
    parts += [in_words(fits)]
    parts += ["### Medians", summary(shared), MEDIANS.format(names=", ".join(common(fits)))]
    parts += ["### Short of the best Gaussian, nat (bold: as good)", matrix(fits, cell)]
    parts += ["### First / warm CPU time, multiples of SciPy's Laplace", matrix(fits, clock)]
    parts += [f"### A bound above that of `{OURS}`, by more than two standard errors", beaten(fits)]
    parts += [f"### As good, and sooner than `{OURS}`", faster(fits)]
    parts += ["### Fits that failed", failures(fits)]
    parts += ["### What is wrong in peers: minimal cases (`peer_defects.py`)", defects(cases)]
    parts += ["### Not measured", missing(fits)]
    return "\n\n".join(parts)


MEDIANS = """\
Over {names}: the posteriors that all peers were tried on but those with fewer in the second column.
No answer: the fit failed, ran out of time, or gave no Gaussian; it then counts as infinitely short.
Means and standard deviations against the references by NUTS: the worst parameter, then the
median over posteriors."""


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


def in_order(fits: Rows) -> Rows:
    from peer_tools import TOOLS
    from peers import TARGETS

    tools = list(TOOLS)
    return sorted(fits, key=lambda one: (TARGETS.index(one["name"]), tools.index(one["tool"])))


# --- the picture ----------------------------------------------------------------------------------

COLOURS = {"mixvi": "#c1272d", "NumPyro": "#1f77b4", "BlackJAX": "#2ca02c", "PyMC": "#e08a00"}
COLOURS |= {"pymc-extras": "#8c564b", "SciPy": "black"}


def picture(fits: Rows, path: pathlib.Path = FIGURE) -> None:
    """Medians over posteriors: what is missing against CPU seconds, first call and warm."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    names = dict.fromkeys(one["name"] for one in fits)
    figure, axes = plt.subplots(figsize=(8.5, 5.4))
    labels = []
    for tool in dict.fromkeys(one["tool"] for one in fits):
        some = [one for one in fits if one["tool"] == tool and not left_out(one)]
        timed = [one for one in some if "first" in one]
        short = FLOOR / 2 if tool == EXACT else max(FLOOR, middle([one["short"] for one in some]))
        if len(some) < len(names) or not timed or not math.isfinite(short):
            continue
        ends = [middle([one.get(key, one["first"]) for one in timed]) for key in ("warm", "first")]
        colour = COLOURS.get(tool.split()[0], "#7f7f7f")
        axes.plot(ends, [short] * 2, color=colour, lw=1, alpha=0.5)
        axes.plot(ends[0], short, "o", mfc="white", mec=colour, ms=6)
        axes.plot(ends[1], short, "o", color=colour, ms=7)
        labels.append((short, ends[1], f"{tool}: exact" if tool == EXACT else tool, colour))
    top = max(short for short, *_ in labels)
    axes.set(xscale="log", yscale="log", ylim=(FLOOR / 3.5, 2 * top))
    gap = (2 * top / (FLOOR / 3.5)) ** 0.036  # labels keep this ratio
    column, labels = 1.6 * max(x for _, x, *_ in labels), sorted(labels)
    heights, height = [], 0.0
    for short, *_ in labels:
        heights.append(height := max(short, height * gap))
    ceiling = 2 * top
    for k in reversed(range(len(heights))):  # those that would leave the picture go down again
        heights[k] = min(heights[k], ceiling)
        ceiling = heights[k] / gap
    for height, (short, x, said, colour) in zip(heights, labels, strict=True):
        axes.plot([x, column], [short, height], ":", color=colour, lw=0.7, alpha=0.7)
        weight = "bold" if said == OURS else "normal"
        where = {"va": "center", "fontsize": 8.5, "color": colour, "weight": weight}
        axes.annotate(f" {said}", (column, height), **where)
    axes.set_xlabel("CPU seconds: a warm call (hollow), the first call with compilation (full)")
    axes.set_ylabel("nats short of the best Gaussian (0.001: or less)")
    axes.set_title(
        f"Medians over {len(names)} posteriors; lower and further left is better", size=10
    )
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * 15)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
