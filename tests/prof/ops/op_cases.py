"""What the tests of op models share: short names for tensors, and tables of values worked out by hand.

A row is ``(names, arguments, work)``, or ``(names, arguments, outputs, work)`` where the capture describes the
outputs, too. ``names`` are the ops that the row holds for, with blanks between them. The work is

* a ``Work``: what the parts of the op add up to, NaN for bytes that are not known;
* a pair, FLOPs and bytes read and written, where it has many pieces;
* a dict of ``Parts``, where the row is about the parts;
* the class of an error, where the op cannot be counted.

    ROWS = [("add sub", (t(2, 3), t(2, 3)), Work(6, 48, 24))]  # 6 elements, 24 bytes
    test_worked_by_hand = worked(ROWS)

``test_every_op.py`` checks that every op with a model has a row in one of the tables.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import Tensor, Work, total

NAN = math.nan
Row = tuple[Any, ...]

OPS_WITH_ROWS: set[str] = set()


def t(*shape: int, dtype: str = "float32", grad: bool = True, **more: Any) -> Tensor:
    return Tensor(shape, dtype, needs_grad=grad, **more)


def i(*shape: int) -> Tensor:
    return t(*shape, dtype="int64")


def i32(*shape: int) -> Tensor:
    return t(*shape, dtype="int32")


def worked(*tables: Iterable[Row]) -> Callable[..., None]:
    """A test with one case for each name of each row."""
    rows = [row for table in tables for row in table]
    OPS_WITH_ROWS.update(name for names, *_ in rows for name in names.split())
    cases = [pytest.param(name, *_columns(rest), id=name) for names, *rest in rows for name in names.split()]

    @pytest.mark.parametrize(("op", "arguments", "outputs", "work"), cases)
    def test(op: str, arguments: Row, outputs: Row | None, work: Any) -> None:
        if isinstance(work, type):
            with pytest.raises(work):
                evaluate(op, arguments, outputs)
            return
        counted = evaluate(op, arguments, outputs)
        if isinstance(work, tuple):
            assert (total(counted).flop, total(counted).nbytes) == work
        else:
            assert numbers(total(counted) if isinstance(work, Work) else counted) == numbers(work)

    return test


def declare_tested(names: str) -> None:
    """Declare ops whose tests have another form than rows."""
    OPS_WITH_ROWS.update(names.split())


def _columns(rest: list[Any]) -> tuple[Row, Row | None, Any]:
    arguments, *outputs, work = rest
    return arguments, outputs[0] if outputs else None, work


def numbers(work: Any) -> Any:
    """Work in a form in which NaN equals NaN."""
    if isinstance(work, dict):
        return {part: numbers(value) for part, value in work.items()}
    return work.flop, _same_nan(work.read), _same_nan(work.write)


def _same_nan(number: float) -> float | str:
    return "NaN" if math.isnan(number) else number
