"""What the command `mixvi` does; its words are in `mixvi_cli`.

On stdout is what was asked for, or with `--json` one object and nothing else; everything that is
only said goes to stderr. Colours and progress are for terminals alone.
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import InputError, MixviError
from ._law._store import is_special
from .tables import (
    Asked,
    Fitted,
    Options,
    Raw,
    TableModel,
    Wishes,
    _kinds,
    _words,
    check_writable,
    fit_table,
    load,
    save,
    write_atomically,
)

FINE, WRONG, UNTRUSTED, BUG, INTERRUPTED = 0, 1, 3, 4, 130
COLOURS = {_words.GOOD: "32", _words.CARE: "33", _words.BAD: "31", "soft": "2", "bold": "1"}


def run(args: argparse.Namespace) -> int:
    """Never a traceback (but with `--debug`): a sentence, and a code for scripts."""
    commands: dict[str, Callable[[Any], int]] = {"fit": fit, "predict": predict, "explain": explain}
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter
    try:
        code = commands[args.command](args)
        sys.stdout.flush()
        return code
    except (MixviError, ImportError) as err:
        return _failed(args, str(err), WRONG)
    except MemoryError:
        return _failed(args, "there is not enough memory for this table.", WRONG)
    except BrokenPipeError:  # whoever reads has seen enough
        _mute()
        return FINE
    except OSError as err:  # a disk that is full, say
        what = repr(err.filename) if err.filename else "the output"
        return _failed(args, f"{what} cannot be written: {err.strerror or err}.", WRONG)
    except KeyboardInterrupt:
        return _failed(args, "interrupted.", INTERRUPTED)
    except Exception as err:
        if args.debug:
            traceback.print_exc()
        what = f"{type(err).__name__}: {' '.join(str(err).split())}"
        return _failed(args, f"this is a bug in mixvi ({what}); --debug shows where.", BUG)


def _failed(args: argparse.Namespace, sentence: str, code: int) -> int:
    sentence = " ".join(sentence.split())
    try:
        if args.json:
            print(json.dumps({"error": sentence, "code": code}))
        sys.stdout.flush()
    except OSError:
        _mute()
    print(f"mixvi {args.command}: {sentence}", file=sys.stderr)
    return code


def _mute() -> None:
    """Where stdout takes nothing: Python would try once more at its end, and complain."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


# --- the commands -----------------------------------------------------------------------------


def fit(args: argparse.Namespace) -> int:
    model_path, report_path = _outputs(args)
    wishes = Wishes(tuple(args.drop), tuple(args.category), tuple(args.keep), bool(args.impute))
    asked = Asked(
        args.target,
        args.task,
        args.family,
        args.basis,
        args.noise,
        args.seed,
        wishes,
        _options(args),
    )
    with Stages(sys.stderr) as stages:
        fitted = fit_table(args.data, asked, stages)
        save(fitted.model, model_path)
        if report_path is not None:
            stages("drawing")
            _write_report(fitted, report_path, model_path)
    said = _words.judgement(fitted.model)
    if args.json:
        made = {"model": model_path, "report": report_path, **_words.as_json(fitted.model)}
        print(_as_json(made))
    else:
        _print_fit(fitted, said, model_path, report_path)
    return UNTRUSTED if said.level == _words.BAD else FINE


def predict(args: argparse.Namespace) -> int:
    if args.output:
        _refuse_same(args.output, {"the model": args.model, "the file to predict": args.data})
        check_writable(args.output)
    model = load(args.model)
    raw, predicted, notes = model.predict_file(args.data, _options(args), args.interval)
    columns: dict[str, list[Any]] = dict(predicted.columns())
    beside = None
    if args.with_input:
        if both := [name for name in raw.names if name in columns]:
            raise InputError(f"--with-input: the file has a column {both[0]!r} already: rename it.")
        beside = raw
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.output:
        _write_table(args.output, columns, beside)
    if args.json:
        head = {"model": args.model, "data": args.data, "rows": raw.n_rows, "notes": notes}
        body = {"output": args.output} if args.output else {"predictions": _with(beside, columns)}
        print(json.dumps(head | body, allow_nan=False))
    elif args.output:
        print(f"Wrote {args.output}: {raw.n_rows:,} rows, {', '.join(predicted.columns())}.")
    else:
        print(_as_csv(_with(beside, columns)), end="")
    return FINE


def explain(args: argparse.Namespace) -> int:
    model = load(args.model)
    said = _words.judgement(model)
    if args.json:
        print(_as_json({"version": model.facts["version"], **_words.as_json(model)}))
    else:
        print(f"A model of {model.target.name!r}, written by mixvi {model.facts['version']}.\n")
        print("\n".join(_words.understood(model)))
        _print_judged(model, said)
    return UNTRUSTED if said.level == _words.BAD else FINE


# --- what is said -----------------------------------------------------------------------------


def _print_fit(
    fitted: Fitted, said: _words.Judgement, model_path: str, report_path: str | None
) -> None:
    model = fitted.model
    print("\n".join(_words.understood(model)))
    _print_judged(model, said)
    wrote = f"Wrote {model_path}" + (f" and {report_path} (open it)" if report_path else "")
    print(f"\n{wrote}.\nNext: mixvi predict {model_path} new.csv -o predictions.csv")


def _print_judged(model: TableModel, said: _words.Judgement) -> None:
    print(f"\n{painted(said.title, said.level)}")
    for sentence in said.sentences:
        print(f"  {sentence}")
    print("\nWhat each column does, the others averaged; those that matter most first:")
    print("\n".join(_words.ranking(model)))
    print(painted(f"\n{_words.about(model)}", "soft"))
    for note in model.facts["notes"]:
        print(f"Note: {note}")


def painted(text: str, colour: str) -> str:
    """In colour, where a person looks on."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not sys.stdout.isatty() else f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


class Stages:
    """What is being done, in a line that is gone at the end; on a terminal alone."""

    def __init__(self, stream: Any):
        self.stream, self.shown = stream, stream.isatty()

    def __call__(self, stage: str) -> None:
        if self.shown:
            print(f"\r\x1b[K{stage} ...", end="", file=self.stream, flush=True)

    def __enter__(self) -> "Stages":
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=self.stream, flush=True)


# --- files ------------------------------------------------------------------------------------


def _options(args: argparse.Namespace) -> Options:
    made = Options(args.separator, args.decimal, args.encoding, args.thousands)
    missing = getattr(args, "missing", None)  # a model remembers what it was in training
    return made if missing is None else dataclasses.replace(made, missing=tuple(missing))


def _outputs(args: argparse.Namespace) -> tuple[str, str | None]:
    stem = Path(args.data).stem or "table"
    model = args.output or f"{stem}.mvi"
    report = None if args.no_report else (args.report or f"{stem}-report.html")
    inputs = {"the table": args.data}
    _refuse_same(model, inputs)
    check_writable(model)
    if report is not None:
        _refuse_same(report, inputs | {"the model": model})
        check_writable(report)
        _needs_for_reports()
    return model, report


def _needs_for_reports() -> None:
    """Before the fit, not after it."""
    try:
        import jinja2  # noqa: F401

        from . import plots  # noqa: F401
    except ImportError as err:
        raise ImportError(
            f"the report needs more ({err}): pip install 'mixvi[cli]', or --no-report."
        ) from err


def _refuse_same(output: str, inputs: dict[str, str]) -> None:
    for what, path in inputs.items():
        if Path(output).resolve() == Path(path).resolve() and not is_special(Path(output)):
            raise InputError(f"{output!r} is {what}: write to another file.")


def _write_report(fitted: Fitted, path: str, model_path: str) -> None:
    from .tables import _report

    page = _report.report(fitted, model_path)
    write_atomically(path, page.encode())


def _with(beside: Raw | None, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return columns if beside is None else {**beside.cells, **columns}


def _write_table(path: str, columns: dict[str, list[Any]], beside: Raw | None) -> None:
    """`beside`: the file that was read, whose columns come first; Parquet keeps their types."""
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as err:
            raise ImportError("Parquet files need pyarrow: pip install 'mixvi[cli]'") from err
        content = io.BytesIO()
        if beside is None:
            table = pa.table(columns)
        else:
            table = beside.table
            if table is None:
                table = pa.table({name: _kinds.typed(beside, name) for name in beside.names})
            for name, values in columns.items():
                table = table.append_column(name, pa.array(values))
        pq.write_table(table, content)
        write_atomically(path, content.getvalue())
    else:
        write_atomically(path, _as_csv(_with(beside, columns)).encode())


def _as_json(made: dict[str, Any]) -> str:
    """JSON has no infinities: null is in their place."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [finite(one) for one in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(made), allow_nan=False)


def _as_csv(columns: dict[str, list[Any]]) -> str:
    content = io.StringIO(newline="")
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return content.getvalue()
