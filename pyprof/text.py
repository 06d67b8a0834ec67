"""Make arbitrary texts from files safe for UTF-8, a terminal and a spreadsheet."""

import codecs
import csv
import io
import re
from collections.abc import Iterable

# Control characters but tab, line feed and carriage return, and marks that turn the direction of a text
_DRIVING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# What a spreadsheet takes for a formula. Some pass over white space before it, and over characters without a width;
# wide forms of the signs count in Japanese ones. A tab or line break at the start may move the rest to another cell.
_FORMULA = re.compile("[\\s\ufeff\u200b-\u200f\u2060]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
# The same in JSON, which has escaped the other ones, and the line breaks at which only some readers of lines divide
_Q, _QQ, _BREAK = '"', '""', re.compile(r"[\r\n]")
_DRIVING_IN_JSON = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """The text without surrogates, which UTF-8 cannot encode: pairs are joined, lone ones become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """The text as one line, with terminal control sequences removed."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def inert_json(text: str) -> str:
    """JSON of the same values, in which characters that may drive a terminal, or divide a line, are escaped.

    >>> print(inert_json('"\\x9b2J"'))
    "\\u009b2J"
    """
    return text if text.isprintable() else _DRIVING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def inert(text: str) -> str:
    """The text as a CSV field that drives no terminal and no spreadsheet, since names in a trace are arbitrary.

    A text that begins like a formula, perhaps after blanks, gets an apostrophe before it. Numbers and a lone `-` do not
    change. Control characters become "?", except those of white space.

    >>> inert("=cmd|' /C calc'!A0"), inert("-1.5"), inert("-"), inert("gemm"), inert("\\x1b[2J")
    ("'=cmd|' /C calc'!A0", '-1.5', '-', 'gemm', '?[2J')
    """
    text = text if text.isprintable() else _DRIVING.sub("?", text)
    if _FORMULA.match(text) is None or text == "-":
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def inert_fields(texts: list[str]) -> list[str]:
    """Many texts as fields of CSV, each ``inert`` and, where its commas, quotes or line breaks ask for it, in quotes.

    >>> inert_fields(["gemm", 'f("a", 1)', "=1+1"])
    ['gemm', '"f(""a"", 1)"', "'=1+1"]
    """
    if not "".join(texts).isprintable() or any(map(_FORMULA.match, texts)):  # rarely: most texts need no other look
        texts = list(map(inert, texts))
    return [
        f'"{text.replace(_Q, _QQ)}"' if _Q in text or "," in text or _BREAK.search(text) else text for text in texts
    ]


def csv_line(values: Iterable[object]) -> bytes:
    """A line of CSV: texts are ``inert``, lists have blanks between their items, None and NaN are empty.

    >>> csv_line(["=1+1", None, float("nan"), 2.5, ["a", "b"]])
    b"'=1+1,,,2.5,a b\\n"
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(_cell, values))
    return clean(line.getvalue()).encode()


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(value)
    if isinstance(value, str):
        return inert(value)
    return "" if value is None or value != value else value


# Longest first: UTF-32's mark begins with UTF-16's.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MARKS = (*_ENCODINGS, codecs.BOM_UTF8)  # the byte-order marks


def as_utf8(text: bytes) -> bytes:
    """The text as UTF-8 without a byte-order mark. A text without a mark is returned as it is.

    >>> as_utf8("[é]".encode("utf-16"))
    b'[\\xc3\\xa9]'
    """
    encoding = next((name for mark, name in _ENCODINGS.items() if text.startswith(mark)), None)
    return text.decode(encoding, "replace").encode() if encoding else text.removeprefix(codecs.BOM_UTF8)
