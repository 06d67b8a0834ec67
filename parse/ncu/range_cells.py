"""The cells in which ncu prints the NVTX ranges of a kernel (``--nvtx``) -> the ranges, outermost first.

There is one column for ranges that a thread pushed and one for those that were started and ended, with the thread's or
the range's number before the ranges, each in quotation marks:

    97844  "<default domain>:forward:none:none:none:none:none:none"  "cub:Sum:none:none:RGB:0xff:REGISTERED:Sum"

A range is its domain, its text, and six fields, named in the column's header: types and values of payload, colour and
message. The message repeats the text or is none. Texts hold colons and quotation marks of their own: pyprof's markers
are JSON.
"""

import re
from functools import lru_cache

from pyprof.parse.ncu.report import Range

PUSHED, STARTED = "Push/Pop_Range", "Start/Stop_Range"
DEFAULT = "<default domain>"
# A range in one quotation mark or, in a cell that was split by row_layout.py, in two.
EACH = {
    mark: re.compile(rf'(?:^|\s){mark}(?P<domain>[^":]*):(?P<rest>.*?){mark}(?=\s*(?:\Z|\d+\s+{mark}|{mark}[^":]*:))',
                     re.DOTALL)
    for mark in ('"', '""')
}  # fmt: skip
OLD = re.compile(r'(?P<domain>[^":]*):(?P<rest>[^"]*)', re.DOTALL)  # a cell with one range and no quotation marks
# Each place where the six fields may begin: types and values of payload and colour, the message's type, the message.
ABOUT = re.compile(r"(?=:\w+:[^:]*:\w+:[^:]*:(?P<type>\w+):(?P<message>))")
QUOTES = re.compile('"+')


@lru_cache(maxsize=4096)
def ranges(pushed: str, started: str = "") -> tuple[Range, ...]:
    """The ranges of both cells.

    >>> ranges('7  "<default domain>:step:none:none:none:none:none:none"  "NCCL:all:none:none:none:none:none:none" ')
    (Range(text='step', domain='', nested=True), Range(text='all', domain='NCCL', nested=True))
    """
    return (*_cell(pushed, True), *_cell(started, False))


def _cell(cell: str, nested: bool) -> list[Range]:
    cell = cell.strip()
    mark = '""' if re.search(r'(?:^|\s)""[^":]*:', cell) else '"'
    found = list(EACH[mark].finditer(cell))
    if not found and (old := OLD.fullmatch(re.sub(r"^\d+[:\s]\s*", "", cell))):
        found = [old]
    return [_range(match["domain"], match["rest"], nested) for match in found]


def _range(domain: str, rest: str, nested: bool) -> Range:
    if all(len(run) % 2 == 0 for run in QUOTES.findall(rest)):
        rest = rest.replace('""', '"')  # CSV's own doubling, which ncu leaves out where it prints ranges
    return Range(_text(rest), "" if domain == DEFAULT else domain, nested)


def _text(rest: str) -> str:
    """The range's text, without the six fields behind it. Where a message repeats the text, that shows where it ends.

    >>> _text("layer:conv1:none:none:RGB:0xff:REGISTERED:layer:conv1"), _text("a:b:none:none:none:none:none:none")
    ('layer:conv1', 'a:b')
    """
    for match in ABOUT.finditer(rest):
        text, message = rest[: match.start()], rest[match.start("message") :]
        if message == text or message == match["type"] == "none":
            return text
    return rest
