"""Times, amounts and shares as text."""

PLURALS = {"copy": "copies", "graph launch": "graph launches"}
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ms(ns: float) -> str:
    """A time in ms with four digits. Only exactly 0 is shown as 0.

    >>> ms(23783537), ms(4460346194), ms(190123), ms(2000000), ms(3), ms(0)
    ('23.78 ms', '4,460 ms', '0.1901 ms', '2.000 ms', '<0.0001 ms', '0 ms')
    """
    if 0 <= ns < 50:
        return "<0.0001 ms" if ns else "0 ms"
    value = ns / 1e6
    digits = next((digits for least, digits in ((1000, 0), (100, 1), (10, 2), (1, 3)) if value >= least), 4)
    return f"{value:,.{digits}f} ms"


def rounded(value: float, digits: int = 4) -> str:
    """A number with so many digits, and with all of them before the point: never with an exponent for a large one.

    >>> rounded(1.23456), rounded(15000.4), rounded(999.96), rounded(0.5, 3), rounded(999.6, 3)
    ('1.235', '15,000', '1,000', '0.5', '1,000')
    """
    return f"{value:,.{digits}g}" if abs(value) < 10 ** (digits - 1) else f"{value:,.0f}"


def amount(value: float, unit: str = "", digits: int = 3) -> str:
    """A number with an SI prefix and a unit.

    >>> amount(3.0455e12, "FLOP/s"), amount(66.9e12), amount(13627435008, "B", 4), amount(999.7e9, "B"), amount(0.02)
    ('3.05 TFLOP/s', '66.9 T', '13.63 GB', '1,000 GB', '0.02')
    """
    size, prefix = next((each for each in PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{rounded(value / size, digits)} {prefix}{unit}".rstrip()


def counted(count: int, word: str) -> str:
    """
    >>> counted(1, "copy"), counted(1200, "copy"), counted(2, "row")
    ('1 copy', '1,200 copies', '2 rows')
    """
    return f"{count:,} {word if count == 1 else PLURALS.get(word, word + 's')}"


def binary_bytes(nbytes: float) -> str:
    """Bytes in multiples of 1,024.

    >>> binary_bytes(6256778000), binary_bytes(5242880), binary_bytes(604), binary_bytes(64)
    ('5.83 GiB', '5.00 MiB', '0.59 KiB', '64 B')
    """
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    size, unit = next((each for each in units if nbytes >= each[0] / 10), (1, "B"))
    value = nbytes / size
    return f"{value:,.{0 if value >= 100 or size == 1 else 2}f} {unit}"


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; 0% if the whole is 0."""
    return percent(100 * part / whole) if whole else "0%"


def percent(value: float) -> str:
    """A percentage with one decimal. Only exactly 0 and 100 are shown as 0% and 100%.

    >>> percent(0), percent(0.01), percent(12.34), percent(99.99), percent(100)
    ('0%', '<0.1%', '12.3%', '>99.9%', '100%')
    """
    if value in (0, 100):
        return f"{value:.0f}%"
    if 0 < value < 0.05:
        return "<0.1%"
    return ">99.9%" if 99.95 <= value < 100 else f"{value:.1f}%"
