"""A progress bar on a terminal; nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


@contextmanager
def progress(stages: int | None, wanted: bool) -> Iterator[Say]:
    """Give a function to call at the beginning of each stage with its description. ``stages``: their number, if known.

    rich takes 0.1 s to import and is loaded only if standard error is a terminal.
    """
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=stages)
        begun = False

        def say(text: str) -> None:
            nonlocal begun
            shown.update(task, description=escape(text), advance=1 if begun else 0)
            begun = True

        yield say
