"""The text of a summary: one line after parsing, or a page with --summary."""

from collections.abc import Iterable, Mapping, Sequence

from pyprof.parse.attribute.contents import Attribution, Contents
from pyprof.parse.attribute.notes import CaptureNotes
from pyprof.quantities import share
from pyprof.table.losses import INCOMPLETE
from pyprof.text import printable

MOST = 8  # the most entries that a page shows per list (reasons, processes, devices)
# kind of row -> (singular, plural)
_NAMES = {"cpu": ("CPU op", "CPU ops"), "memcpy": ("copy", "copies"), "graph": ("opaque graph", "opaque graphs")}


def one_line(profiler: str, contents: Contents) -> str:
    """One line with the rows of a table and how much of their time is attributed to an op."""
    return f"{profiler}: {counts(contents.kinds)}; {contents.attribution.sentence()}"


def counts(kinds: Mapping[str, int]) -> str:
    """The number of rows per kind, as text: `52 kernels, 5 memsets`."""
    return ", ".join(f"{count:,} {_named(kind, count)}" for kind, count in kinds.items()) or "no rows"


def _named(kind: str, count: int) -> str:
    singular, plural = _NAMES.get(kind, (kind, f"{kind}s"))
    return singular if count == 1 else plural


def page(notes: CaptureNotes, contents: Contents) -> list[str]:
    """The summary as aligned lines, each with a label and a fact about the file."""
    first, *rest = notes.warnings or [""]
    is_incomplete = first.startswith(INCOMPLETE)
    lines = [
        ("incomplete", first if is_incomplete else ""),
        ("file", notes.file),
        ("profiler", notes.profiler),
        ("GPU", _gpus(contents.gpus)),
        ("processes", _processes(contents)),
        ("rows", counts(contents.kinds)),
        *_times(contents, is_incomplete),
        ("steps", spread(contents.steps) if contents.steps else ""),
        ("ranges", ", ".join(notes.ranges)),
        *(("warning", text) for text in (rest if is_incomplete else notes.warnings)),
    ]
    lines = [line for line in lines if line[1]]
    width = max(len(word) for word, _ in lines)
    return [f"{word:{width}}  {printable(text)}" for word, text in lines]


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _gpus(gpus: Mapping[str, int]) -> str:
    named = {name or "unknown": count for name, count in gpus.items()}
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in named.items())


def _processes(contents: Contents) -> str:
    pids, ranks = contents.pids, contents.ranks
    if not pids:
        return ""
    shown = ", ".join(map(str, pids[:MOST])) + (f" and {len(pids) - MOST} more" if len(pids) > MOST else "")
    of_ranks = f"; {'rank' if len(ranks) == 1 else 'ranks'} {spread(ranks)}" if ranks else ""
    return f"{len(pids)} ({shown}){of_ranks}"


def spread(numbers: Sequence[int]) -> str:
    """The numbers as text: `0-3` if none in between is missing, or else a list."""
    whole = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers[: 2 * MOST]))


def _times(contents: Contents, is_incomplete: bool) -> Iterable[tuple[str, str]]:
    attribution = contents.attribution
    if not attribution.total_ns:
        return
    time = f"{attribution.processor} time"
    about = "about " if attribution.estimate else ""
    yield time, _ms(attribution.total_ns)
    yield from _spans(contents, is_incomplete)
    yield "attributed", f"{about}{share(attribution.attributed_ns, attribution.total_ns)} of {time} has an op"
    if attribution.estimate:
        yield "  estimated", _sampled(attribution, contents.rows, time)
    reasons = list(attribution.reasons.items())
    for reason, ns in reasons[:MOST]:
        yield "  without", f"{about}{share(ns, attribution.total_ns)}: {reason}"
    if len(reasons) > MOST:
        yield "  without", f"{len(reasons) - MOST} more reasons"


def _sampled(attribution: Attribution, rows: int, time: str) -> str:
    """The bounds of an estimated share, and how to get the exact one."""
    assert attribution.estimate is not None
    sample_rows, *times = attribution.estimate
    sampled, low, high = (share(ns, attribution.total_ns) for ns in times)
    return f"{low} to {high}, from {sample_rows:,} of {rows:,} rows with {sampled} of {time}; --exact looks at all"


def _spans(contents: Contents, is_incomplete: bool) -> Iterable[tuple[str, str]]:
    """The span of each device and how long it was busy, which an incomplete capture does not tell."""
    for device in contents.devices[:MOST]:
        which = f"process {_number(device.pid)}, device {_number(device.device)}: " if len(contents.devices) > 1 else ""
        of_span = f" ({share(device.busy_ns, device.span_ns)})" if device.span_ns else ""
        busy = "" if is_incomplete else f", busy {_ms(device.busy_ns)}{of_span}"
        yield "span", f"{which}{_ms(device.span_ns)}{busy}"


def _number(number: int | None) -> str:
    return "unknown" if number is None else str(number)
