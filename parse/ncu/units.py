"""Numbers and units as Nsight Compute prints them, in the locale of whoever ran it -> base units.

ncu scales a metric to a readable unit (``--print-units auto``), separates thousands and follows the locale:
``1,234.56 Kbyte``, ``1.234,56 Kbyte``, ``1 234,56 Kbyte``. Its prefixes are powers of 1,000.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from pyprof.parse.ncu.report import NAN

PREFIX = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}
SECONDS = {"s": 1.0, "second": 1.0, "sec": 1.0}
FRACTION = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
TIME = {f"{small}{word}": part * one for small, part in FRACTION.items() for word, one in SECONDS.items()}
# Words to which ncu puts a prefix; others ("pass", "%", "SM") have none. B, Bytes: as the user interface exports.
WORDS = {"byte": "byte", "bytes": "byte", "B": "byte", "hz": "hz", "Hz": "hz", "inst": "inst", "sector": "sector",
         "cycle": "cycle", "thread": "thread", "warp": "warp", "request": "request", "op": "op"}  # fmt: skip
SCALED = {f"{prefix}{word}": (factor, base) for prefix, factor in PREFIX.items() for word, base in WORDS.items()}


@lru_cache(maxsize=1024)
def base_unit(unit: str) -> tuple[float, str]:
    """The factor to the base unit, and that unit. Times are in ns, rates are per second.

    >>> base_unit("Kbyte"), base_unit("msecond"), base_unit("cycle/nsecond"), base_unit("Gbyte/second")
    ((1000.0, 'byte'), (1000000.0, 'ns'), (1000000000.0, 'hz'), (1000000000.0, 'byte/s'))
    >>> base_unit("%"), base_unit("register/thread"), base_unit("Mhz")
    ((1.0, '%'), (1.0, 'register/thread'), (1000000.0, 'hz'))
    """
    above, slash, below = unit.strip().partition("/")
    if not slash:
        if above in TIME:
            return round(TIME[above] * 1e9, 3), "ns"
        return SCALED.get(above, (1.0, above))
    factor, name = SCALED.get(above, (1.0, above))
    if below in TIME:
        factor = factor * round(1 / TIME[below])
        return factor, "hz" if name == "cycle" else f"{name}/s"
    return factor, f"{name}/{below}"


SPACES = str.maketrans("", "", " \u00a0\u202f\u2009'’")  # between thousands in French, Swiss and other locales
MISSING = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "+inf", "none", "(!)nan", "(!)n/a"))
PLAIN = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
SHAPE = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?")
GROUPED = {mark: re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(mark)}\d{{2,3}})*{re.escape(mark)}\d{{3}}(?!\d).*")
           for mark in ".,"}  # fmt: skip


def decimal_mark(texts: Iterable[str]) -> str:
    """The decimal mark that numbers show, "." or ","; empty if each of them could be read both ways.

    >>> decimal_mark(["12", "1,234", "1,234.56"]), decimal_mark(["1.234", "95,06"]), decimal_mark(["1,234"])
    ('.', ',', '')
    """
    return next(filter(None, map(_mark_of, texts)), "")


def _mark_of(text: str) -> str:
    text = _bare(text)
    if not ("." in text or "," in text) or not SHAPE.fullmatch(text):
        return ""
    text = re.split("[eE]", text)[0]
    last = max(text.rfind("."), text.rfind(","))
    mark, other = text[last], ",."[text[last] == ","]
    before, after = text[:last], text[last + 1 :]
    if other in before:
        return mark
    if mark in before:
        return other  # it separates thousands
    return mark if len(after) != 3 or before.lstrip("+-") in ("", "0") or len(before.lstrip("+-")) > 3 else ""


def number(text: str, decimal: str = ".") -> float | None:
    """A cell's number; NaN if it is missing, None if it is no number in this notation.

    A cell with instances, "158 (0: 158)", has its total first.

    >>> number("1,234.5"), number("1.234,5", ","), number("1 234,5", ","), number("n/a"), number("95,06")
    (1234.5, 1234.5, 1234.5, nan, None)
    """
    if decimal == "." and PLAIN.fullmatch(text):  # most cells
        return float(text)
    text = _bare(text)
    other = "," if decimal == "." else "."
    if other in text:
        if not GROUPED[other].fullmatch(text.partition(decimal)[0]):
            return None
        text = text.replace(other, "")
    if decimal == ",":
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return NAN if text.lower() in MISSING else None
    if "_" in text:  # which Python takes for a separator
        return None
    return value if abs(value) < float("inf") else NAN


def _bare(text: str) -> str:
    text = text.partition(" (")[0] if text[:1] != "(" else text
    return text if text.isalnum() else text.strip().translate(SPACES)
