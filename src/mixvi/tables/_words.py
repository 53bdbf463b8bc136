"""What is known of a model, in words that need no statistics."""

from typing import Any, NamedTuple

from ._columns import Category, figure, figures, plural
from ._effects import Effect
from ._model import TableModel
from ._scores import LEVEL
from ._target import CLASSIFY, COUNT

GOOD, CARE, BAD = "good", "care", "bad"
# From such a share of right answers on, the classes are all but separated.
SEPARATED = 0.9


class Judgement(NamedTuple):
    """`level`: "good", "care" or "bad"; a line, and the sentences behind it."""

    level: str
    title: str
    sentences: tuple[str, ...]


def judgement(model: TableModel) -> Judgement:
    post, score = model.posterior, model.score
    sentences = (_predicts(model), _calibrated(model), _posterior(model))
    if post.trust == "reject" and _separated(model) and score.better and score.calibrated:
        return Judgement(CARE, "Take its classes, but not its bands", sentences)
    if post.trust == "reject":
        return Judgement(BAD, "Do not trust this model as it stands", sentences)
    if not score.better:
        return Judgement(CARE, "No better than a guess without the columns", sentences)
    if not score.calibrated or post.trust == "weigh":
        what = "probabilities" if model.target.task == CLASSIFY else "intervals"
        return Judgement(CARE, f"Useful, but take its {what} with care", sentences)
    return Judgement(GOOD, "Trust it, within the numbers below", sentences)


def _predicts(model: TableModel) -> str:
    score, target = model.score, model.target
    if target.task == CLASSIFY:
        usual = target.classes[max(range(len(target.counts)), key=target.counts.__getitem__)]
        said = (
            f"Of 100 rows that it has not seen, it gets about {100 * score.hit:.0f} right; always "
            f"answering {usual!r} gets {100 * score.hit_without:.0f}."
        )
    else:
        median = figures(target.low, target.high, target.median)[-1]
        said = (
            f"For rows that it has not seen, it typically misses by {figure(score.hit)}; always "
            f"answering {median} misses by {figure(score.hit_without)}."
        )
        if score.explained > 0:
            said += f" It explains {100 * score.explained:.0f}% of the spread."
    if score.better:
        return said
    return said + " That it knows the columns makes no difference that luck would not make."


def _calibrated(model: TableModel) -> str:
    score = model.score
    if model.target.task == CLASSIFY:
        off, luck = 100 * score.off, 100 * score.luck
        if score.calibrated:
            return (
                "Its probabilities can be taken at their word: they are within "
                f"{off:.1f} points of how often it happened; luck alone explains up to {luck:.1f}."
            )
        return (
            f"Its probabilities are {off:.1f} points away from how often it happened, on average; "
            f"luck alone explains {luck:.1f}."
        )
    held = f"Its {100 * LEVEL:.0f}% intervals"
    if score.calibrated:
        return f"{held} hold as many of the rows that it has not seen as they should."
    if score.held is None:  # a model from before this was kept
        found = f"are {100 * score.off:.1f} points away from holding as many rows as they should"
    else:
        found = f"hold {100 * score.held:.0f}% of the rows that it has not seen"
    return f"{held} {found}; luck alone explains up to {100 * score.luck:.1f} points." + (
        " Counts vary more than this model (Poisson) knows." * (model.target.task == COUNT)
    )


def _separated(model: TableModel) -> bool:
    return model.target.task == CLASSIFY and model.score.hit > SEPARATED


def _posterior(model: TableModel) -> str:
    trust = model.posterior.trust
    if trust == "trust":
        return "The computation behind it was checked, and agrees with the posterior."
    if trust == "weigh":
        return "The computation behind it is close to the posterior, though not in every detail."
    if trust == "reject" and _separated(model):
        return (
            "The columns tell the classes apart almost completely. The posterior is then lopsided, "
            "which no Gaussian is: take the classes that it predicts, but not its bands or small "
            "probabilities."
        )
    if trust == "reject":
        straight = model.settings.basis == "linear"
        remedy = "More rows help." if straight else "A simpler model (--basis linear) may do."
        return (
            "The computation behind it is not close to the posterior: bands and probabilities may "
            f"be wrong. {remedy}"
        )
    return "The computation behind it was not checked."


# --- lines ------------------------------------------------------------------------------------


def understood(model: TableModel) -> list[str]:
    """The data as understood."""
    facts, target, columns = model.facts, model.target, model.columns
    lines = [f"{facts['file']}: {plural(facts['rows'], 'row')}, {facts['how']}."]
    why = f" (guessed: {target.guess}; --task says otherwise)" if target.guess else ""
    lines += [f"Target {target.name!r}: {target.words}{why}.", "Columns:"]
    width = max(len(column.name) for column in columns.used)
    for column in columns.used:
        lines += [f"  {column.name:<{width}}  {column.kind}: {column.words}{filled(column)}"]
    for name, reason in columns.left_out.items():
        lines += [f"Left out {name!r}: {reason}."]
    return lines


def filled(column: Any) -> str:
    if not column.n_missing:
        return ""
    if isinstance(column, Category):
        with_what = repr(column.fill)
    else:
        with_what = figures(column.low, column.high, column.fill)[-1]
    return f"; {plural(column.n_missing, 'missing value')} filled with {with_what}"


def about(model: TableModel) -> str:
    """`logistic regression on ...`: the model in a line."""
    return f"Model: {model.facts['about']}; Gaussian family {model.posterior.family!r}."


def ranking(model: TableModel) -> list[str]:
    """One line for each column, those that matter most first."""
    width = max(len(one.column) for one in model.effects)
    return [f"  {one.column:<{width}}  {swing(one, model)}" for one in model.effects]


def swing(effect: Effect, model: TableModel) -> str:
    """`yes from 20% (age 18) to 88% (age 79)`."""
    low, high = effect.ends
    line = effect.mean[effect.main]
    if model.target.task == CLASSIFY:
        first, last = f"{100 * line[low]:.0f}%", f"{100 * line[high]:.0f}%"
        what = f"{effect.outputs[effect.main]!r} from"
    else:
        ends = line[low], line[high]
        first, last = figures(*ends) if effect.apart else map(figure, ends)
        what = "from"
    if not effect.apart:
        return f"no difference that can be told ({what} {first} to {last})"
    at = [effect.at[low], effect.at[high]]
    at_low, at_high = figures(*at) if effect.is_number else at
    return f"{what} {first} (at {at_low}) to {last} (at {at_high})"


# --- for programs -----------------------------------------------------------------------------


def as_json(model: TableModel) -> dict[str, Any]:
    said, post = judgement(model), model.posterior
    return {
        "data": {key: model.facts[key] for key in ("file", "rows", "how")},
        "target": model.target.to_json(),
        "columns": model.columns.to_json()["used"],
        "left_out": model.columns.left_out,
        "score": model.score.to_json(),
        "verdict": said._asdict(),
        "posterior": {
            "trust": post.trust,
            "sentence": post.verdict,
            "family": post.family,
            "log_evidence": post.log_evidence,
            "khat": post.khat,
            "about": model.facts["about"],
        },
        "effects": [
            {
                "column": one.column,
                "size": one.size,
                "band": [one.size_low, one.size_high],
                "apart": one.apart,
                "words": swing(one, model),
            }
            for one in model.effects
        ],
        "notes": model.facts["notes"],
    }
