"""Which tests execute which line, as `tools/run_mutants.py record` found, and in which order a mutant gets them."""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.mutants import Mutant

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Coverage:
    """Which tests execute which line, and how long each takes."""

    def __init__(self, folder: Path, sources: Path) -> None:
        self.folder, self.sources, self.files = folder, sources, set[Path]()
        self.seconds: dict[str, float] = {}
        self.tests: dict[tuple[str, int], set[str]] = defaultdict(set)  # (file, line) -> tests
        self.lines: Counter[tuple[str, str]] = Counter()  # (file, test) -> how many lines of the file it executes
        self.words: dict[str, set[tuple[str, int]]] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read what has been recorded since the last time."""
        for path in sorted(set(self.folder.glob("*.json")) - self.files):
            self._add(json.loads(path.read_bytes()))
            self.files.add(path)
            self.words = None

    def _add(self, recorded: dict[str, Any]) -> None:
        for name, test in recorded["tests"].items():
            self.seconds[name] = test["seconds"]
            for context in test["contexts"]:
                for file, lines in recorded["lines"].get(context, {}).items():
                    self.lines[file, name] += len(lines)
                    for line in lines:
                        self.tests[file, line].add(name)

    def of(self, mutant: Mutant, nearest: bool = True) -> list[str]:
        """The tests that execute a mutant's statement, those first that are likely to notice.

        What runs at import has no test: there it is the tests of the lines that use the names that the statement binds.
        Where no test executes the statement, it is those that come ``nearest``, or none.
        """
        tree = ast.parse((self.sources / mutant.file).read_bytes())
        lines = statement_lines(tree, mutant.line)
        names = bound_names(tree, mutant.line)
        named = [n for n in ast.walk(tree) if isinstance(n, FUNCTIONS) and n.name in names]
        decorated = {(mutant.file, line) for n in named for line in range(n.body[0].lineno, (n.end_lineno or 0) + 1)}
        places = decorated | self._uses(names) if names else {(mutant.file, line) for line in lines}
        executing = self._executing(places)
        return self._in_order(executing or (self._around(tree, mutant) if nearest else set()), mutant.file)

    def _in_order(self, tests: set[str], file: str) -> list[str]:
        """Those in the module's own test file; then in turn the fastest and the one that executes most of the module.

        One case of each test function comes before its others.
        """
        turn: Counter[str] = Counter()
        fastest = []
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.split("[")[0]
            fastest.append((turn[function], self.seconds[test], test))
            turn[function] += 1
        fast = [test for *_, test in sorted(fastest)]
        most = sorted(tests, key=lambda test: (-self.lines[file, test], self.seconds[test], test))
        both = dict.fromkeys(test for pair in zip(fast, most, strict=True) for test in pair)
        return sorted(both, key=lambda test: f"test_{Path(file).stem}.py" not in test)

    def _executing(self, places: Iterable[tuple[str, int]]) -> set[str]:
        return {test for place in places for test in self.tests.get(place, ())}

    def _around(self, tree: ast.Module, mutant: Mutant) -> set[str]:
        """The tests of the function, or else of the file: what runs in a tracer or a child may have no record."""
        functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
        around = [range(f.lineno, (f.end_lineno or 0) + 1) for f in functions]
        for lines in sorted((lines for lines in around if mutant.line in lines), key=len):
            if found := self._executing((mutant.file, line) for line in lines):
                return found
        return self._executing(place for place in self.tests if place[0] == mutant.file)

    def _uses(self, names: Iterable[str]) -> set[tuple[str, int]]:
        if self.words is None:
            self.words = defaultdict(set)
            for file in {file for file, _ in self.tests}:
                path = self.sources / file
                for number, line in enumerate(
                    path.read_text(encoding="utf-8").splitlines() if path.is_file() else (), 1
                ):
                    for word in re.findall(r"\w+", line):
                        self.words[word].add((file, number))
        return {place for name in names for place in self.words.get(name, ())}


def statement_lines(tree: ast.Module, line: int) -> range:
    """The lines of the innermost statement around a line; of a compound statement, those of its head."""
    best = range(line, line + 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            first = getattr(body[0], "lineno", None) or body[0].pattern.lineno if body else None
            end = min(node.end_lineno, max(node.lineno, first - 1)) if first else node.end_lineno
            if line <= end:
                best = range(node.lineno, end + 1)
    return best


def bound_names(tree: ast.Module, line: int) -> set[str]:
    """The names that a statement binds at import; none where the line lies in a function's body.

    A decorator or a default belongs to its function, a field to its class too.
    """
    names: set[str] = set()
    body: list[ast.stmt] = tree.body
    while True:
        node = next((n for n in body if _first_line(n) <= line <= (n.end_lineno or line)), None)
        if isinstance(node, FUNCTIONS):
            inside = line >= node.body[0].lineno
            return set() if inside else names | {node.name}
        if isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With | ast.For):
            names |= {node.name} if isinstance(node, ast.ClassDef) else set()
            body = node.body + getattr(node, "orelse", [])
            continue
        stored = ast.walk(node) if node else ()
        names |= {n.id for n in stored if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return names or {"import"}


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
