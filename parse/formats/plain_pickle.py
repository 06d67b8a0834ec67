"""Read a pickle that holds only plain values: dicts, lists, pairs of integers, texts, numbers, booleans and None.

A pickle is a program, so a stranger's may do anything. Here the whole program is checked before a line of it runs. It
may only have the opcodes below, all of which make plain values; those that look up or call anything are not among them.
Integers have at most 9 bytes, no number of a memo entry or length of a text exceeds the file, and tuples do not nest,
since Python's hash of a deep tuple overflows the C stack. So time and memory grow with the size of the file alone.
Opcodes: Lib/pickletools.py of Python 3.13; protocols 2 to 5.
"""

import io
import pickle
import re
from typing import Any, NoReturn

from pyprof.errors import InputError

PROTOCOLS = tuple(bytes([0x80, version]) for version in range(2, 6))
STOP = ord(".")
_INTEGER = rb"K.|M..|J.{4}|\x8a(?:" + b"|".join(rb"%b.{%d}" % (re.escape(bytes([n])), n) for n in range(10)) + b")"
# Opcodes whose arguments have a fixed length. Runs are limited, since re keeps a record of each repetition.
_FIXED = re.compile(
    rb"(?:"
    rb"h.|j.{4}|\x94|q."  # BINGET, LONG_BINGET, MEMOIZE, BINPUT
    rb"|(?:" + _INTEGER + rb"){2}\x86"  # a pair of integers
    rb"|" + _INTEGER + rb"|G.{8}|N|\x88|\x89"  # integers, BINFLOAT, None, True, False
    rb"|\(|\]|\}|a|e|s|u"  # MARK, lists, dicts
    rb"|\x95.{8}"  # FRAME
    rb"){1,4096}",
    re.DOTALL,
)
# Opcodes with a length: opcode -> bytes of the length.
_TEXTS = {0x8C: 1, ord("X"): 4, 0x8D: 8, ord("C"): 1, ord("B"): 4}
_LONG_BINPUT = ord("r")
_NAMES = {
    **dict.fromkeys(b"c\x93i", "looks up a function or class"),
    **dict.fromkeys(b"Rob\x81\x92", "calls or changes an object"),
    **dict.fromkeys(b"\x82\x83\x84PQ", "asks for an object from outside"),
}


def is_pickle(head: bytes) -> bool:
    return head.startswith(PROTOCOLS)


def load_plain(data: bytes, shown: object, wanted: str) -> Any:
    """The value of a pickle. Raises InputError if it is damaged, or holds anything but plain values.

    ``wanted``: what the file should be, for the message ("expected a memory snapshot").
    """
    check_opcodes(data, shown, wanted)
    try:
        return _Plain(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise InputError(shown, f"{wanted}, found a damaged pickle ({error}); save it again") from None


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is refused")


def check_opcodes(data: bytes, shown: object, wanted: str) -> None:
    """Raise InputError unless the pickle's program has only allowed opcodes, up to its end."""
    at, size = 2, len(data)
    while at < size and data[at] != STOP:
        run = _FIXED.match(data, at)
        if run is not None:
            at = run.end()
            continue
        opcode = data[at]
        if opcode in _TEXTS:
            begin = at + 1 + _TEXTS[opcode]
            at = begin + int.from_bytes(data[at + 1 : begin], "little")
        elif opcode == _LONG_BINPUT and int.from_bytes(data[at + 1 : at + 5], "little") <= at:
            at += 5
        else:
            does = _NAMES.get(opcode, f"has opcode {opcode:#04x}, which no plain value needs")
            raise InputError(shown, f"{wanted}, found a pickle that {does} at byte {at:,}: it was not run")
    if at >= size:
        raise InputError(shown, f"{wanted}, found a pickle that is cut: copy it again")
