"""Tables whose bytes are changed at random, and the catalogue of bad ones."""

import pytest

import bad_command_lines
import fuzz_tables


def test_mutated_tables_never_end_in_a_traceback(tmp_path):
    found = fuzz_tables.fuzzed(tmp_path, 100, seed=1, reports=False)
    for its in found.values():
        for one in its:
            assert one.code in (0, 1, 3), (one.said, one.content)
        # both kinds of end are seen
        assert 3 < sum(one.code == 1 for one in its) < len(its) - 3


def test_a_traceback_would_be_seen(tmp_path, monkeypatch):
    def broken(args):
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz_tables.mixvi_cli, "main", broken)
    code, said = fuzz_tables.outcome(["fit"])
    assert code == 4
    assert "Traceback" in said


def test_every_bad_command_line_gets_its_sentence(tmp_path):
    found = bad_command_lines.outcomes(tmp_path)
    assert len(found) >= 20
    for what, line, code, sentence in found:
        assert code in (1, 2), (what, line)
        assert sentence.startswith("mixvi")
        assert len(sentence) > 25
    sentences = [sentence for *_, sentence in found]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("kind", fuzz_tables.KINDS)
def test_mutations_change_something(kind):
    import numpy as np

    rng, content = np.random.default_rng(0), fuzz_tables.table()
    assert sum(kind(content, rng) != content for _ in range(20)) > 5
