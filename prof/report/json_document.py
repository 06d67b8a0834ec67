"""The JSON that pyprof report prints with --json (pyprof/command/envelope.py adds the header)."""

from collections.abc import Mapping
from typing import Annotated, Any

from pyprof.command.json_schema import FileWritten, Record, doc
from pyprof.prof.summary.sentences import Figure


class Page(Record):
    """The page that was written, and its sentences."""

    output: Annotated[FileWritten, doc("the page written")]
    title: Annotated[str, doc("of the page")]
    headline: Annotated[str, doc("what ran where, and how much of it has an op")]
    figures: Annotated[list[Figure], doc("the page's first line, as printed (numbers: --summary)")]
    sentences: Annotated[list[str], doc("its summary, as pyprof prof --summary prints it")]


def page_of(output: str, model: Mapping[str, Any]) -> Page:
    """``model``: what the page shows (``page_model``)."""
    return Page(
        output=FileWritten.of(output),
        title=model["title"],
        headline=model["summary"]["headline"],
        figures=[Figure(**figure) for figure in model["summary"]["figures"]],
        sentences=model["summary"]["sentences"],
    )
