"""The JSON document that pyprof run prints with --json (pyprof/command/envelope.py adds the header)."""

from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc
from pyprof.prof.report.json_document import Page


class ScriptRun(Record):
    """The collected trace and the script's exit code."""

    script: Annotated[str, doc("as given")]
    exit_code: Annotated[int, doc("the command's: the script's, or 1 where only the report could not be made")]
    output: Annotated[
        FileWritten | None,
        doc("the trace, for pyprof parse (of several ranks, this one's); null where an attached tool collected"),
    ]
    report: Annotated[Page | None, doc("with --report: the page, as of pyprof report")]
