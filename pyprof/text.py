"""Texts out of files, which are anybody's, made fit for UTF-8 and for a terminal's line."""

from __future__ import annotations


def clean(text: str) -> str:
    """The text without halves of surrogate pairs, which UTF-8 cannot hold: pairs joined, lone ones U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """One line without what could drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
