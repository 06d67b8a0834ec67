"""A check for your CI that fails if a change makes your program's training step slower.

    import pyprof
    from pyprof.testing import assert_no_regression

    def test_the_training_step_is_not_slower(tmp_path):
        with pyprof.profile(tmp_path / "net.json.gz", warmup=3, steps=10):
            train()  # calls pyprof.step() after each iteration
        assert_no_regression("baseline.json.gz", tmp_path / "net.json.gz", "step > 3%", "tc_lost > 0")

The test fails if a step takes more than 3% longer than in the baseline, or if a matrix product no longer runs on tensor
cores. The failure shows what changed and why. `pyprof diff --fail-if` is the same check on the command line.

Capture the baseline on the same kind of machine: `pyprof run --warmup 3 --steps 10 -o baseline.json.gz train.py`.
docs/how-to/diff.md has the conditions, how to keep a baseline, and a workflow for CI.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyprof.prof.diff.compare import Comparison

WIDTH = 100  # characters per line of the report in the error message


def assert_no_regression(
    before: str | os.PathLike[str], after: str | os.PathLike[str], *conditions: str, strict: bool = False
) -> Comparison:
    """Raise AssertionError if one of the conditions is true of the difference between two captures.

    before, after: captures; each may be any file that pyprof reads: a profiler's file, net.dict or net.parquet.
    conditions: conditions that must not become true, as for `pyprof diff --fail-if`: "step > 3%", "gpu > 0.5 ms",
        "tc_lost > 0".
    strict: also count changes that are within the noise of the measurements.

    Returns the comparison, whose numbers a test may check further. The AssertionError's message lists the conditions
    that are true, each with its measured value, and then has the report of `pyprof diff`.
    Raises ValueError if no condition is given, ConditionError if one cannot be read, and InputError if a file cannot
    be read or neither capture has the quantity that a condition names.
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
    comparison = compare(a, b)
    verdicts = [check(gate, comparison, strict) for gate in gates]
    if any(verdict.fails for verdict in verdicts):
        report = io.BytesIO()
        write_terminal(comparison, verdicts, report, WIDTH, False)
        failed = [line for verdict in verdicts if verdict.fails for line in verdict_words(verdict)]
        raise AssertionError("\n".join([*failed, "", report.getvalue().decode()]))
    return comparison
