"""For mkdocstrings: docstrings describe parameters as `trace: add the call stack`, which becomes a list."""

import re

from griffe import Docstring, Extension, Function, Object

ENTRY = re.compile(r"^((?:\w+, )*\w+): ")


class Parameters(Extension):
    """A line that begins with names of parameters and a colon is an entry; what is indented below it belongs to it."""

    def on_function(self, *, func: Function, **_: object) -> None:
        as_list(func, {parameter.name for parameter in func.parameters})


def as_list(item: Object, names: set[str]) -> None:
    if item.docstring is None:
        return
    lines: list[str] = []
    inside = False
    for line in item.docstring.value.split("\n"):
        match = ENTRY.match(line)
        entry = match is not None and set(match[1].split(", ")) <= names
        if entry and not inside and lines and lines[-1]:
            lines.append("")
        inside = entry or (inside and line.startswith(" "))
        lines.append(f"- **{match[1]}**: {line[match.end() :]}" if match is not None and entry else line)
    item.docstring = Docstring("\n".join(lines), parent=item)
