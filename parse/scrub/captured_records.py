"""pyprof's own records of captured graphs (pyprof/captured_record.py): unpacked, cleaned, and packed again.

They stand compressed in texts of NVTX ranges. To clean such a text as it stands would destroy what is in it, and leave
what is private.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from pyprof.captured_record import CAPTURED_RANGE, CapturedRecord, packed, unpacked
from pyprof.parse.scrub.private_text import Cleaner
from pyprof.range_pieces import Piece, piece_in

GONE = f"{CAPTURED_RANGE}[record]"  # of a record that cannot be unpacked


def cleaned_records(texts: Iterable[str], cleaner: Cleaner) -> dict[str, str]:
    """What stands in the place of each text that is a piece of a record.

    A record that has lost a piece is removed. So are those of several processes if they have several pieces each: which
    belong together is not known here.
    """
    pieces = {text: one for text in texts if (one := piece_in(text, CAPTURED_RANGE)) is not None}
    records = defaultdict(list)
    for text, one in pieces.items():
        records[one.of, text if one.of == 1 else ""].append(text)
    found = {}
    for own in records.values():
        whole = [pieces[text] for text in own]
        record = unpacked(whole) if len({one.number for one in whole}) == len(whole) else None
        clean = "" if record is None else packed(_cleaned(record, cleaner))
        for text in own:
            number, of, _ = pieces[text]
            length = -(-len(clean) // of)
            part = clean[number * length : (number + 1) * length]
            found[text] = GONE if record is None else Piece(number, of, part).text(CAPTURED_RANGE)
    return found


def _cleaned(record: CapturedRecord, cleaner: Cleaner) -> CapturedRecord:
    lists = tuple(tuple(map(cleaner.text, each)) for each in record.lists)
    return msgspec.structs.replace(record, texts=tuple(map(cleaner.text, record.texts)), lists=lists)
