"""The report of what Nsight Compute measured, as text, CSV or JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.command.envelope import write_answer
from pyprof.command.terminal_text import output_width
from pyprof.files import Name, open_output
from pyprof.parse.ncu.reader import read
from pyprof.prof.limits.peaks_file import load_peaks
from pyprof.prof.ncu import report_rows
from pyprof.prof.ncu.json_document import Counters, MeasuredKernel, gpus_of, kernels_of, together
from pyprof.prof.ncu.report_layers import Layers
from pyprof.prof.ncu.report_rows import Kernels
from pyprof.prof.ncu.report_sentences import notes, sentences
from pyprof.prof.ncu.report_text import kernel_table, order, paragraphs, sum_table
from pyprof.text import csv_line

TEXT, CSV, JSON = "text", "csv", "json"


class Asked(NamedTuple):
    """What the user asked for: the form, which rows, and where to."""

    form: str = TEXT
    sort: str | None = None
    top: int | None = None
    layers: Layers | None = None
    peaks: str | None = None
    width: int | None = None
    output: Name = None
    force: bool = False


def write_report(file: str, asked: Asked) -> list[str]:
    """Write the report of a file, and return what its numbers rest on if the form has no place for it.

    Raises InputError if the file is none of ncu's, and UsageError if its layers do not fit.
    """
    measured = read(Path(file))
    found = report_rows.kernels(measured, load_peaks(asked.peaks) if asked.peaks else None, asked.layers)
    rows = order(found, asked.sort, asked.top)
    said, rests_on = sentences(found), notes(found, int(measured.failed.sum()), asked.layers)
    if asked.form == JSON:
        document = _document(found, rows, said, rests_on)
        write_answer("counters", document, input=[file], output=asked.output, force=asked.force)
        return []
    with open_output(asked.output, asked.force) as out:
        if asked.form == CSV:
            out.writelines(_csv(found, rows))
            return rests_on
        width, _ = output_width(asked.output, asked.width)
        out.writelines(f"{line}\n".encode() for line in _text(found, rows, said, rests_on, width))
    return []


def _document(found: Kernels, rows: Sequence[int], said: list[str], rests_on: list[str]) -> Counters:
    return Counters(
        gpus=gpus_of(found),
        total=together(report_rows.total(found)),
        phases=[together(each) for each in report_rows.by_phase(found)],
        kinds=[together(each) for each in report_rows.by_kind(found)],
        without_gemm=together(report_rows.without_products(found)),
        sentences=said,
        notes=rests_on,
        kernels=kernels_of(found, rows),
    )


def _text(found: Kernels, rows: Sequence[int], said: list[str], rests_on: list[str], width: int) -> Iterator[str]:
    whole = report_rows.total(found)
    yield from kernel_table(found, rows, width)
    if len(rows) < len(found):
        yield f"({len(found) - len(rows):,} more)"
    yield ""
    yield from sum_table("kind", report_rows.by_kind(found), whole, width)
    if any(found.phases):
        yield ""
        yield from sum_table("phase", report_rows.by_phase(found), whole, width)
    yield ""
    yield from paragraphs(said, width)
    yield ""
    yield from paragraphs(rests_on, width, "* ")


def _csv(found: Kernels, rows: Sequence[int]) -> Iterator[bytes]:
    """The kernels with the keys of the JSON document; unknown numbers are empty."""
    keys = MeasuredKernel.__struct_fields__
    yield csv_line(keys)
    yield from (csv_line(getattr(record, key) for key in keys) for record in kernels_of(found, rows))
