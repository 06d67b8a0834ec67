"""Values that no profiler writes, or only a broken one."""

from random import Random
from typing import Any

from tests.tables import HOSTILE

NUMBERS = (0, -1, 1, 2, 255, 65_536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 10**18)
TOO_LARGE = (2**63, 2**64, -(2**64), 10**30, 10**400)  # for SQLite's and numpy's integers
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-308, 5e-324, 1e18, 1e19, 1.7e308, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", " ", "0", "-1", "nan", "NULL", "true", "1e5", "9" * 40, "a" * 5000, "é" * 300, "\ufeff", "\x7f", "../../x",
    "=1+1", "\t=cmd()", "\n@x", "aten::mm, seq = 99999999999999999999", "aten::mm, seq = -1, op_id = 3, sizes = [[",
    "[[1, 2], [3", "[" * 500, "{" * 300, '{"pyprof": 1, "op": 3}', "{'mod': 1}", "ProfilerStep#", "ProfilerStep#1e9",
    "execute_1_context_2(sq3sk4sqsq5sqsk6)_generation_7(sq8sk9sqsq1sqsk2)", "step[DECODE bs=99999999999999999999]",
    "Optimizer.step#", "nn.Module: _0", "nn.Module: Linear_999999999999999999999", "x.py(99999999999999999999): f",
    "ncclDevKernel_AllReduce", "Memcpy HtoD (", "Torch-Compiled Region: 0/0", "triton_poi_fused_", "_Z" + "N" * 200,
    "_ZN2at6native" + "I" * 100, "void a<" + "b<" * 200, "float32", "(4, 4, 4)", "(-1, 0, 99999999999)", "1,234.5",
    *HOSTILE,
)  # fmt: skip


def number(random: Random, near: int | float | None = None) -> int | float:
    """A number; ``near``: the one in whose place it is put."""
    roll = random.random()
    if near is not None and near == near and roll < 0.35:
        return _beside(random, near)
    if roll < 0.75:
        return random.choice(NUMBERS)
    return random.choice(FLOATS) if roll < 0.9 else random.randrange(-(10**12), 10**12)


def _beside(random: Random, near: int | float) -> int | float:
    if abs(near) > 1e300:
        return -near
    return random.choice((near + 1, near - 1, -near, near * 2, near * 1000, near // 2 if near else 7))


def text(random: Random, near: str = "") -> str:
    """A text; ``near``: the one in whose place it is put, of which parts may remain."""
    if not near or random.random() < 0.4:
        return random.choice(TEXTS)
    begin, end = sorted(random.randrange(len(near) + 1) for _ in range(2))
    how = random.randrange(5)
    if how == 0:
        return near[:begin]
    if how == 1:
        return near[:begin] + near[end:]
    if how == 2:
        return near[:begin] + random.choice(TEXTS) + near[end:]
    if how == 3:
        return near[:end] + near[begin:end] * random.choice((1, 2, 30)) + near[end:]
    at = random.randrange(len(near))
    return near[:at] + chr(random.choice((0, 9, 10, 27, 34, 39, 44, 48, 57, 92, 125, 0x85, 0xFFFD))) + near[at + 1 :]


def value(random: Random, near: Any = None, large: bool = True) -> Any:
    """Any value that JSON has. ``large``: also integers of more than 64 bits."""
    roll = random.random()
    if isinstance(near, str) and roll < 0.6:
        return text(random, near)
    if isinstance(near, int | float) and roll < 0.6:
        return number(random, near)
    if roll < 0.72:
        return number(random)
    if roll < 0.84:
        return text(random)
    more: tuple[Any, ...] = (
        None,
        True,
        False,
        [],
        {},
        [[]],
        [None],
        {"": None},
        [1, "a", None],
        [[1, 2], [3, 4]],
        -1.5,
    )
    return random.choice((*more, *TOO_LARGE) if large else more)
