"""The text of a file in whichever Unicode encoding an editor, PowerShell's `>` or a download left it."""

from __future__ import annotations

import codecs

# Longest first: UTF-32's mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


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
