"""Which tests have the words of a mutant's code: of hundreds that execute a line, the likely ones come first."""

import ast
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tools.mutant_coverage import statement_lines
from tools.mutants import Mutant

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Words:
    """The words of each test function of a tree, rare ones counting for more."""

    def __init__(self, tree: Path, tests: set[str]) -> None:
        self.tree = tree
        self.texts = {_function(test): set[str]() for test in tests}
        for file in {test.split("::")[0] for test in tests}:
            source = (tree / file).read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(source)):
                name = f"{file}::{node.name}" if isinstance(node, FUNCTIONS) else ""
                if name in self.texts:
                    self.texts[name] = words(f"{file} {ast.get_source_segment(source, node)}")
        of_each = Counter(word for text in self.texts.values() for word in text)
        self.weights = {word: math.log(len(self.texts) / n) ** 2 for word, n in of_each.items()}

    def nearest(self, mutant: Mutant, tests: list[str]) -> list[str]:
        """The tests by how much they have in common with the mutant's statement; one case of each function first."""
        told = self._of_mutant(mutant)

        @cache
        def common(function: str) -> float:
            text = self.texts.get(function, set[str]())
            return sum(self.weights[word] for word in told & text) / (20 + len(text))

        cases: Counter[str] = Counter()
        order = {}
        for test in tests:
            order[test] = cases[test.split("[", 1)[0]], -common(_function(test))
            cases[test.split("[", 1)[0]] += 1
        return sorted(tests, key=order.__getitem__)

    def _of_mutant(self, mutant: Mutant) -> set[str]:
        source = (self.tree / mutant.file).read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = statement_lines(tree, mutant.line)
        around = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, FUNCTIONS) and node.lineno <= mutant.line <= (node.end_lineno or 0)
        ]
        return words(
            " ".join([*source.splitlines()[lines.start - 1 : lines.stop - 1], *around, Path(mutant.file).stem])
        )


def words(text: str) -> set[str]:
    """The words of names, too: parts between underscores, and between small and capital letters."""
    return {word.lower() for word in re.findall(r"[a-z]{3,}|[A-Z][a-z]{2,}|[A-Z]{3,}", text)}


def _function(test: str) -> str:
    """file::function, or file::class, of a test's name"""
    return "::".join(test.split("[", 1)[0].split("::")[:2])
