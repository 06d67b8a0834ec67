"""Searches a scrubbed copy for what should not be in it: words that were removed, this machine's, private forms."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pyprof.parse.scrub.private_text import private_parts
from pyprof.quantities import counted

PART, OVERLAP = 1 << 24, 256  # bytes searched at a time, and how far parts overlap
LEAST = 4  # letters of a word: a shorter one stands in any large file by chance
TEXT = re.compile(rb"[\x20-\x7e\x80-\xff]{%d,}" % LEAST)
MOST = 20  # findings that are listed
_FORMS = re.compile(
    rb"/(?:home|Users)/[\w.-]+|[A-Za-z]:\\+Users\\+\w+|/root/\S+|\b\d{1,3}(?:\.\d{1,3}){3}\b|@[\w-]+\.\w+"
    rb"|\w(?:HOME|USER|HOSTNAME|PATH|TOKEN|SECRET)=|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-"
)


def in_bytes(source: BinaryIO, words: Iterable[str]) -> Counter[str]:
    """What a file's bytes hold of these words, and of private forms: how often each."""
    listed = "|".join(re.escape(word) for word in sorted(words) if len(word) >= LEAST)
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])".encode(), re.IGNORECASE) if listed else None
    found: Counter[str] = Counter()
    for part in _parts(source):
        if pattern is not None:
            found.update(match[0].decode("utf-8", "replace") for match in pattern.finditer(part))
        if _FORMS.search(part):
            for text in TEXT.findall(part):
                if _FORMS.search(text):
                    found.update(private_parts(text.decode("utf-8", "replace")))
    return found


def in_texts(texts: Iterable[str], words: Iterable[str]) -> Counter[str]:
    """The same of texts that a file holds packed, as Parquet does."""
    words = [word for word in words if len(word) >= LEAST]
    found: Counter[str] = Counter()
    for text in texts:
        found.update(private_parts(text))
        found.update(
            word for word in words if re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text, re.I)
        )
    return found


def _parts(source: BinaryIO) -> Iterator[bytes]:
    before = b""
    while part := source.read(PART):
        yield before + part
        before = part[-OVERLAP:]


def listed(found: Counter[str]) -> list[str]:
    """The findings as lines, the most frequent first."""
    lines = [f"remains: {text[:100]!r}, {counted(count, 'time')}" for text, count in found.most_common(MOST)]
    return lines + ([f"and {len(found) - MOST:,} others"] if len(found) > MOST else [])
