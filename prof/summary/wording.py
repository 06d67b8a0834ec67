"""Amounts, rates, lists and names in the words of the summary."""

from collections.abc import Sequence

from pyprof import quantities
from pyprof.quantities import ms

LONGEST_NAME = 40  # characters of an op's name
LONGEST_LAYER = 48  # characters of a layer's name


def brief_time(ns: float) -> str:
    """A time as text, in a smaller unit if it is far below 1 ms.

    >>> brief_time(1960), brief_time(2_340_000)
    ('1.96 µs', '2.340 ms')
    """
    return f"{ns / 1e3:,.3g} µs" if ns < 1e6 else ms(ns)


def amount(value: float, unit: str) -> str:
    """
    >>> amount(3.0455e12, "FLOP"), amount(13627435008, "B"), amount(512, "B")
    ('3.046 TFLOP', '13.63 GB', '512 B')
    """
    return quantities.amount(value, unit, digits=4)


def rate(nbytes: float, ns: float) -> str:
    """The text of a rate in B/s."""
    return amount(1e9 * nbytes / ns, "B/s")


def joined(words: Sequence[str]) -> str:
    """
    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else "".join(words)


def times(ratio: float) -> str:
    """A ratio with two decimals. Only exactly 0 is shown as 0.

    >>> times(2), times(0.004), times(0), times(31.416)
    ('2.00', '<0.01', '0.00', '31.42')
    """
    return "<0.01" if 0 < ratio < 0.005 else f"{ratio:,.2f}"


def operation_name(name: str) -> str:
    """The name of an op or a kernel, shortened for use in a sentence."""
    half = (LONGEST_NAME - 2) // 2
    return (name if len(name) <= LONGEST_NAME else f"{name[:half]}..{name[-half:]}") or "(no name)"


def layer_name(name: str) -> str:
    """The end of a layer's path, the most specific part, shortened for use in a sentence."""
    return name if len(name) <= LONGEST_LAYER else f"..{name[2 - LONGEST_LAYER :]}"
