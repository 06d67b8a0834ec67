"""docs/reference/ops.md: every op that has a model, its formula and its test, out of the registry.

    python tools/ops_page.py [--write]

Without --write it says whether the page still is what the registry gives.
"""

import inspect
import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pyprof.prof.ops.families  # noqa: E402 (fills the registry)
import pyprof.prof.work.helper_kernels  # noqa: E402, F401 (fills the rules)
from pyprof.prof.ops.model import FAMILY, MODELS, ORDER  # noqa: E402
from pyprof.prof.work.helpers import registry  # noqa: E402
from tools.generated_page import write_or_check  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "ops.md"
TESTS = sorted((ROOT / "tests" / "prof" / "ops").glob("test_*.py"))
HEAD = """# Ops: what is counted, and how

<!-- made by tools/ops_page.py out of the registry in prof/ops/model.py: change a model's docstring, not this page -->

{models} models count {ops} names of aten ops (and of some other libraries'). A formula gives the FLOPs and what is read
and written; E is the number of elements of the input, O of the result. Names that end in `.backward` are an op's whole
backward, for `pyprof.count`; in a capture, the aten ops that the backward runs are counted one by one. An in-place op
(`add_`) counts as its out-of-place form. The rules are in [design.md](../explanation/design.md).

An op of your own: a function of its arguments, tensors as `pyprof.prof.ops.model.Tensor` (shape, dtype), that returns
`Work`, the FLOPs and the bytes read and written. Registered by the op's name, as the profiler records it, it counts in
`pyprof.count`; for `prof.py`, too, a package names the module as an entry point.

```python
from pyprof.prof.ops.model import Tensor, Work, model  # pyprof.model is the same decorator


@model("mylib::scaled_add", family="custom")
def scaled_add(a: Tensor, b: Tensor, scale: float, *_: object) -> Work:
    \"\"\"2 an element\"\"\"
    return Work(2 * a.numel, a.nbytes + b.nbytes, a.nbytes)
```

Where only the FLOPs are wanted, `pyprof.flops("mylib::scaled_add", lambda a, b, scale: 2 * a.numel)` does it in one
line, also for a Triton kernel by the name of its function.

```toml
[project.entry-points."pyprof.models"]
mylib = "mylib.flops"
```
"""


def main(argv: list[str] | None = None) -> int:
    return write_or_check(argv, __file__, "Make docs/reference/ops.md out of the registry of op models.", PAGE, page())


def page() -> str:
    """The page's text."""
    tested = {path.name: _words(path) for path in TESTS}
    rows: dict[tuple[str, str], list[str]] = {}
    for name, function in MODELS.items():
        rows.setdefault((FAMILY[name], _formula(function)), []).append(name)
    parts = [HEAD.format(models=len(set(MODELS.values())), ops=len(MODELS))]
    for family, group in groupby(sorted(rows), key=lambda row: row[0]):
        parts.append(f"\n## {family}\n\n{_derivations(family)}| op | formula | test |\n|---|---|---|\n")
        for key in group:
            names = sorted(rows[key])
            shown = ", ".join(f"`{name}`" for name in names)
            parts.append(f"| {shown} | {_cell(key[1])} | {_tests(names, tested)} |\n")
    return "".join([*parts, _own()])


def _own() -> str:
    """The rules for kernels that have work of their own."""
    inside = inspect.cleandoc(registry.__doc__ or "")
    rows = [
        f"| `{pattern.pattern.replace('|', chr(92) + '|')}` | {_cell(_formula(rule))} |\n"
        for pattern, rule in registry.RULES
    ]
    head = "| kernel's name | FLOPs and bytes |\n|---|---|\n"
    return f"\n## kernels on their own\n\n```text\n{inside}\n```\n\n{head}{''.join(rows)}"


def _derivations(family: str) -> str:
    """What the family's modules say of all their ops."""
    names = [name for name in MODELS if FAMILY[name] == family]
    records = [ORDER[name].record for name in names if name in ORDER]
    modules = {MODELS[name].__module__ for name in names} | {record.__module__ for record in records if record}
    texts = [inspect.cleandoc(sys.modules[module].__doc__ or "") for module in sorted(modules)]
    return "".join(f"```text\n{text}\n```\n\n" for text in texts if text)


def _formula(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def _cell(formula: str) -> str:
    """A docstring in a table's cell: lines stay lines, nothing is markup."""
    escaped = re.sub(r"([|*_<>\\`\[\]])", r"\\\1", formula)
    return (
        "<br>".join(line.strip() for line in escaped.splitlines() if line.strip())
        .replace("\\<", "&lt;")
        .replace("\\>", "&gt;")
    )


def _words(path: Path) -> set[str]:
    """The words of a test's string literals, in which a table's row names its ops."""
    literals = re.findall(r'"([\w:. ]+)"', path.read_text(encoding="utf-8"))
    return {word for literal in literals for word in literal.split()}


def _tests(names: list[str], tested: dict[str, set[str]]) -> str:
    """The test files that name one of the ops."""
    wanted = {*names, *(name.removeprefix("fbgemm::") for name in names)}
    files = [file for file, words in tested.items() if wanted & words] or ["test_every_op.py"]
    return ", ".join(f"[{file}](../../tests/prof/ops/{file})" for file in files)


if __name__ == "__main__":
    sys.exit(main())
