"""The questions that can be asked, each as the command line that answers it.

Every value stands in one word with its option (``--where=VALUE``), so that no value can be taken for an option; files
come as absolute paths.
"""

from __future__ import annotations

from typing import NamedTuple

KERNEL_COLUMNS = "idx,step,layer,op,dir,kernel,sil,flops,bytes,tc,bound,sol"


class Question(NamedTuple):
    """A command line: the name of the command, and its words."""

    command: str
    words: tuple[str, ...]


def summary(file: str) -> Question:
    return Question("prof", ("--json", "--summary", file))


def advise(file: str) -> Question:
    return Question("prof", ("--json", "--advise", file))


def explain(file: str, row: int) -> Question:
    return Question("prof", ("--json", f"--explain={row}", file))


def group(file: str, by: str, where: str = "", layer_depth: int = 0) -> Question:
    depth = (f"--layer-depth={layer_depth}",) if layer_depth else ()
    return Question("prof", ("--json", f"--group={by}", *_where(where), *depth, file))


def kernels(file: str, rows: int, where: str = "", columns: str = "", sort: str = "") -> Question:
    order = (f"--sort={sort}",) if sort else ()
    chosen = f"-c{columns or KERNEL_COLUMNS}"
    return Question("prof", ("--json", chosen, *_where(where), *order, f"--top={rows}", file))


def plan(file: str, first: str = "", without: str = "", step_ms: float = 0, device: str = "") -> Question:
    given = {"--with": first, "--without": without, "--step-ms": step_ms or "", "--device": device}
    return Question("plan", ("--json", *(f"{option}={value}" for option, value in given.items() if value), file))


def diff(before: str, after: str, fail_if: str = "", step: str = "") -> Question:
    given = {"--fail-if": fail_if, "--step": step}
    return Question(
        "diff", ("--json", *(f"{option}={value}" for option, value in given.items() if value), before, after)
    )


def _where(condition: str) -> tuple[str, ...]:
    return (f"--where={condition}",) if condition else ()
