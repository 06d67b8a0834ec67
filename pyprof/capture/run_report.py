"""`pyprof run --report`: the web page and the summary of the trace that has just been collected.

This runs in the script's process after the script has ended and `pyprof.deinit()` has undone everything; it needs no
torch. It does the same as `pyprof report TRACE` and `pyprof prof --summary TRACE`. The script owns standard output, so
the summary goes to standard error.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyprof.command.progress import progress
from pyprof.errors import PyprofError, packages

if TYPE_CHECKING:
    from pyprof.prof.report.json_document import Page

PAGE_SUFFIXES = (".html", ".htm")
SMALL = 100_000  # bytes of a trace that may hold no operation
NARROW = 100  # summary line width if standard error is not a terminal, the same as in `pyprof prof --summary`


class Report(NamedTuple):
    page: Page  # the page's record as `pyprof report --json` prints it
    summary: str
    next_command: tuple[str, ...]
    warnings: tuple[str, ...]  # warnings of the trace's reader


def default_page(trace: Path) -> Path:
    """The default path of a trace's page: beside the trace.

    >>> default_page(Path("out/net.json.gz")).as_posix(), default_page(Path("net.rank0.json.gz")).as_posix()
    ('out/net.html', 'net.rank0.html')
    """
    return trace.with_name(trace.name.removesuffix(".gz").removesuffix(".json") + ".html")


def can_be_read(trace: Path) -> bool:
    """Whether `pyprof prof` takes the trace. A large one is not read for that, since it holds operations."""
    if trace.stat().st_size > SMALL:
        return True
    with packages():
        from pyprof.prof.load import load_table
    try:
        load_table(trace, lambda _: None)
    except PyprofError:
        return False
    return True


def make_report(trace: Path, page: Path, *, force: bool, quiet: bool) -> Report:
    """Parse and annotate `trace`, write `page`, and return the summary's text.

    Raises InputError if the trace has no operations, and PyprofError if the page cannot be written.
    """
    with packages():
        from pyprof.files import open_output
        from pyprof.prof.changes.find_changes import captured_at, find_changes
        from pyprof.prof.changes.say import brief
        from pyprof.prof.load import load_table
        from pyprof.prof.report.json_document import page_of
        from pyprof.prof.report.page_model import page_model
        from pyprof.prof.report.render import render
        from pyprof.prof.summary.capture_numbers import summarise
        from pyprof.prof.summary.terminal import write_summary
        from pyprof.prof.work.annotate import annotate

        with progress(2, not quiet) as say:
            loaded = load_table(trace, say, host=True)
            annotation = annotate(loaded.table)
        changes = find_changes(
            loaded.table, annotation, loaded.host, None, loaded.name, newest=captured_at(trace)
        ).document
        numbers = summarise(loaded.table, annotation, memory=loaded.memory)
        model = page_model(loaded.table, annotation, None, changes, trace.name, numbers, loaded.memory)
        with open_output(page, force) as out:
            render(model, out)
        text = io.BytesIO()
        width, terminal = _terminal()
        write_summary(numbers, text, width, terminal, brief(changes))
        about_page = page_of(str(page), model)
        options = ("--advise",) if changes.changes else ("--group", "op,dir", "-w", str(width))
        command = ("pyprof", "prof", *options, str(trace))
        return Report(about_page, text.getvalue().decode(), command, loaded.warnings)


def _terminal() -> tuple[int, bool]:
    """The width of standard error, and whether it is a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns, True
    except (OSError, ValueError, AttributeError):  # it is a file or a pipe, closed, or replaced by the script
        return NARROW, False
