"""For tests: that a change did not make a training step slower.

    from pyprof.testing import assert_no_regression

    def test_training_step(tmp_path):
        with pyprof.profile(tmp_path / "net.json.gz", warmup=3, steps=10):
            train()  # calls pyprof.step() after each iteration
        assert_no_regression("baseline.json.gz", tmp_path / "net.json.gz", "step > 3%", "tc_lost > 0")

The baseline has to be captured on the same kind of machine; docs/how-to/diff.md has how to keep one, and a
workflow for CI.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyprof.prof.diff.compare import Comparison

__all__ = ["assert_no_regression"]

WIDTH = 100  # characters a line of the report in a failure


def assert_no_regression(
    before: str | os.PathLike[str], after: str | os.PathLike[str], *conditions: str, strict: bool = False
) -> Comparison:
    """Raise AssertionError, with the report, where one of the conditions (as of ``pyprof diff --fail-if``) is true.

    ``before`` and ``after`` are captures: any file that pyprof reads. ``strict``: changes within noise count, too.
    Returns the comparison. Raises ValueError without a condition, ConditionError for one that cannot be read, and
    InputError for a file that is not as it should be, or a condition on what neither capture has.
    """
    from pyprof.prof.diff.compare import compare
    from pyprof.prof.diff.gate import check, parse_gate
    from pyprof.prof.diff.lines import make_side
    from pyprof.prof.diff.sentences import verdict_words
    from pyprof.prof.diff.write_terminal import write_terminal
    from pyprof.prof.load import load_table

    if not conditions:
        raise ValueError("assert_no_regression: give a condition, such as 'step > 3%'")
    gates = [parse_gate(condition) for condition in conditions]
    a, b = (make_side(load_table(os.fspath(name))) for name in (before, after))
    found = compare(a, b)
    verdicts = [check(gate, found, strict) for gate in gates]
    if any(verdict.fails for verdict in verdicts):
        out = io.BytesIO()
        write_terminal(found, verdicts, out, WIDTH, False)
        failed = [line for verdict in verdicts if verdict.fails for line in verdict_words(verdict)]
        raise AssertionError("\n".join([*failed, "", out.getvalue().decode()]))
    return found
