"""Damage to any file's bytes, as disks, networks and cut copies do it, and a little worse."""

import gzip
from random import Random

NUMBERS = tuple(n.to_bytes(size, order) for n in (0, 1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
                for size in (1, 2, 4, 8) for order in ("little", "big") if n < 256**size)  # fmt: skip


def damaged(content: bytes, random: Random) -> bytes:
    """The bytes after one to four changes."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice(CHANGES)(content, random)
    return content


def _flip(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 3, 20, 200))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _number(content: bytes, random: Random) -> bytes:
    """A length or a count becomes another."""
    new = random.choice(NUMBERS)
    at = random.randrange(min(len(content), random.choice((64, 4096, 1 << 30))) + 1)
    return content[:at] + new + content[at + len(new) :]


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _lost(content: bytes, random: Random) -> bytes:
    begin, end = _part(content, random)
    return content[:begin] + content[end:]


def _zeroed(content: bytes, random: Random) -> bytes:
    begin, end = _part(content, random)
    return content[:begin] + bytes(end - begin) + content[end:]


def _doubled(content: bytes, random: Random) -> bytes:
    begin, end = _part(content, random)
    return content[:end] + content[begin:end] * random.choice((1, 3)) + content[end:]


def _moved(content: bytes, random: Random) -> bytes:
    """A part is written over another."""
    begin, end = _part(content, random)
    at = random.randrange(len(content) + 1)
    return content[:at] + content[begin:end] + content[at + end - begin :]


def _noise(content: bytes, random: Random) -> bytes:
    begin, end = _part(content, random)
    return content[:begin] + random.randbytes(min(end - begin, 64)) + content[end:]


def _part(content: bytes, random: Random) -> tuple[int, int]:
    size = min(len(content), random.choice((1, 8, 100, 4096, 65536)))
    begin = random.randrange(len(content) - size + 1)
    return begin, begin + random.randrange(size + 1)


CHANGES = (_flip, _flip, _number, _number, _cut, _lost, _zeroed, _doubled, _moved, _noise)


def packed(content: bytes, random: Random) -> bytes:
    """The bytes as gzip: whole, damaged, in several parts, with something behind, or packed twice."""
    whole = gzip.compress(content, 1, mtime=0)
    how = random.randrange(7)
    if how < 2:
        return whole
    if how == 2:
        return damaged(whole, random)
    if how == 3:
        half = len(content) // 2
        return gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1)
    if how == 4:
        return whole + random.choice((b"\0" * 512, b"x", whole, b"\x1f\x8b"))
    if how == 5:
        return gzip.compress(whole, 1)
    return gzip.compress(bytes(random.choice((1 << 10, 1 << 24))), 9)  # of nothing but zeros
