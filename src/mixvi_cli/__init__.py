"""The command `mixvi`: its words. Help, version and usage errors need nothing else, and come at
once; what it does is in `mixvi.cli`, which is imported when there is something to do."""

import argparse
import sys
from collections.abc import Sequence

EXIT_CODES = """\
exit codes:
  0  done
  1  something is wrong with a file or an argument; one sentence on stderr says what
  2  usage
  3  done, but the verdict is: do not trust this model (fit, explain)
  4  a bug in mixvi
"""
FIT = """\
Learns to predict one column of a table from the others. Leaves a model and a report to open in a
browser. The first line of the file holds the names of its columns.
"""
PREDICT = """\
Predicts the rows of another file with the same columns: the most probable class and the probability
of each, or the mean and an interval that holds so many new rows.
"""
EXPLAIN = (
    "Says what a model has learnt: the data as understood, how well it predicts, what matters."
)


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="mixvi",
        description="Bayesian models of tables, with a word on whether to trust them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="say which version this is")
    commands = top.add_subparsers(dest="command", metavar="{fit,predict,explain}")
    _fit(commands.add_parser("fit", help="learn from a table", **_texts(FIT)))
    _predict(commands.add_parser("predict", help="predict new rows", **_texts(PREDICT)))
    _explain(commands.add_parser("explain", help="say what a model has learnt", **_texts(EXPLAIN)))
    return top


class _Parser(argparse.ArgumentParser):
    """Says what is wrong before how it is used."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n{self.format_usage()}")


def _texts(description: str) -> dict:
    shape = argparse.RawDescriptionHelpFormatter
    return {"description": description, "formatter_class": shape, "allow_abbrev": False}


def _fit(it: argparse.ArgumentParser) -> None:
    it.add_argument("data", help="a CSV or Parquet file")
    it.add_argument("-t", "--target", required=True, metavar="COLUMN", help="what to predict")
    it.add_argument(
        "--task",
        choices=("classify", "regress", "count"),
        help="classes, numbers or counts (guessed from the target when left out)",
    )
    it.add_argument("-o", "--output", metavar="FILE", help="the model (left out: DATA.mvi, here)")
    it.add_argument("--report", metavar="FILE", help="the report (left out: DATA-report.html)")
    it.add_argument("--no-report", action="store_true", help="write none")
    columns = it.add_argument_group("columns")
    for option, what in {
        "--drop": "leave these out",
        "--category": "read these as categories, though they look like numbers",
        "--keep": "take these in, though they look like names of rows",
    }.items():
        columns.add_argument(
            option, nargs="+", action="extend", default=[], metavar="COLUMN", help=what
        )
    columns.add_argument(
        "--impute",
        choices=("median",),
        help="fill missing numbers with the median, missing categories with the most frequent",
    )
    columns.add_argument(
        "--missing",
        nargs="*",
        action="extend",
        metavar="TEXT",
        help="cells that stand for no value, in any case, beside empty ones (left out: NA N/A #N/A "
        "NaN null ?; with nothing after it: empty cells alone)",
    )
    model = it.add_argument_group("model")
    model.add_argument(
        "--family",
        default="auto",
        choices=("auto", "laplace", "mu", "eig", "lr", "full", "diag"),
        help="how the Gaussian adapts (auto: as much as pays)",
    )
    model.add_argument(
        "--basis",
        default="auto",
        choices=("auto", "linear", "rbf", "gp"),
        help="straight lines, radial basis functions, a Gaussian process (auto: the first two, "
        "whichever predicts rows left out better)",
    )
    model.add_argument(
        "--noise",
        default="student_t",
        choices=("student_t", "gaussian", "cauchy"),
        help="of numbers, around what is predicted",
    )
    model.add_argument("--seed", type=_seed, default=0, help="of all draws (0)")
    _reading(it)
    _saying(it)


def _predict(it: argparse.ArgumentParser) -> None:
    it.add_argument("model", help="what 'mixvi fit' wrote")
    it.add_argument("data", help="a CSV or Parquet file with the same columns")
    it.add_argument(
        "-o", "--output", metavar="FILE", help="CSV or .parquet (left out: CSV on stdout)"
    )
    it.add_argument(
        "--interval",
        type=_share,
        default=0.9,
        metavar="SHARE",
        help="of new rows that an interval holds (0.9)",
    )
    it.add_argument("--with-input", action="store_true", help="copy the columns of the file, too")
    _reading(it)
    _saying(it)


def _explain(it: argparse.ArgumentParser) -> None:
    it.add_argument("model", help="what 'mixvi fit' wrote")
    _saying(it)


def _reading(it: argparse.ArgumentParser) -> None:
    reading = it.add_argument_group("reading CSV")
    reading.add_argument(
        "--separator", type=_separator, metavar="CHAR", help="between cells (found when left out)"
    )
    reading.add_argument("--decimal", choices=(".", ","), default=".", help="the decimal sign (.)")
    reading.add_argument(
        "--thousands",
        type=_thousands,
        metavar="CHAR",
        help="between groups of three digits: one of , . ' or 'space' (none when left out)",
    )
    reading.add_argument("--encoding", help="UTF-8 when left out")


def _saying(it: argparse.ArgumentParser) -> None:
    it.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    it.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"a whole number from 0 to 2^32 - 1, not {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"a number between 0 and 1, not {text!r}")
    return share


def _separator(text: str) -> str:
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"one character (or 'tab'), not {text!r}")
    return text


def _thousands(text: str) -> str:
    text = {"space": " "}.get(text, text)
    if len(text) != 1 or text.isalnum() or text in '"+-\r\n':
        raise argparse.ArgumentTypeError(f"one sign (or 'space'), not {text!r}")
    return text


def version() -> str:
    from importlib import metadata

    return metadata.version("mixvi")


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    try:
        args = top.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if args.version:
        print(f"mixvi {version()}")
        return 0
    if args.command is None:
        top.print_usage(sys.stderr)
        print("mixvi: say what to do: fit, predict or explain (mixvi --help)", file=sys.stderr)
        return 2
    from mixvi import cli

    return cli.run(args)
