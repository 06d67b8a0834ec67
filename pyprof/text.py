"""Texts out of files, which are anybody's, made fit for UTF-8 and for a terminal's line."""

from __future__ import annotations

import codecs


def clean(text: str) -> str:
    """The text without halves of surrogate pairs, which UTF-8 cannot hold: pairs joined, lone ones U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """One line without what could drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def inert(text: str) -> str:
    """A CSV field that no spreadsheet takes for a formula: names come from traces, and those from anybody.

    What begins as a formula does has an apostrophe before it; numbers and a lone `-` are none.

    >>> inert("=cmd|' /C calc'!A0"), inert("-1.5"), inert("-"), inert("gemm")
    ("'=cmd|' /C calc'!A0", '-1.5', '-', 'gemm')
    """
    if text[:1] not in ("=", "+", "-", "@", "\t", "\r") or text == "-":
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


# Longest first: UTF-32's mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


MARKS = tuple(mark for mark, _ in _MARKS)  # of byte order: what such a text starts with


def as_utf8(text: bytes) -> bytes:
    """The text as UTF-8 without a byte-order mark; one without any mark as it is.

    >>> as_utf8("[é]".encode("utf-16"))
    b'[\\xc3\\xa9]'
    """
    encoding = next((name for mark, name in _MARKS if text.startswith(mark)), None)
    if encoding is None:
        return text
    if encoding == "utf-8-sig":
        return text[len(codecs.BOM_UTF8) :]
    return text.decode(encoding, "replace").encode()
