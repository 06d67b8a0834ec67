"""The JSON document that pyprof run prints with --json (pyprof/command/envelope.py adds the header)."""

from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc
from pyprof.prof.report.json_document import Page


class ChildCapture(Record):
    """The trace of a process that the script started."""

    pid: Annotated[int, doc("the process's number")]
    rank: Annotated[int | None, doc("its rank in the job; null where it has none")]
    output: Annotated[FileWritten, doc("the trace")]


class ScriptRun(Record):
    """The collected trace and the script's exit code."""

    script: Annotated[str, doc("as given")]
    exit_code: Annotated[int, doc("the command's: the script's, or 1 where only the report could not be made")]
    output: Annotated[
        FileWritten | None,
        doc("the script's own trace; null where an attached tool collected, or where only children used PyTorch"),
    ]
    report: Annotated[Page | None, doc("with --report: the page, as of pyprof report")]
    children: Annotated[list[ChildCapture], doc("the traces of the processes that the script started, by rank")]
