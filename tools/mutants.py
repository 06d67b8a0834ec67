"""Small changes of the code, each of which should make a test fail: their list, and a sample of it.

A mutant is one changed place of one file: another comparison, operator, constant, key or return value, a statement left
out, a condition turned round, two arguments swapped, an index off by one. `tools/run_mutants.py` gives each to the
tests that execute its line. Not changed, because no test could or should tell: docstrings, annotations, words of
errors, f-strings, keyword arguments of decorators, zip's `strict`, imports, and code for types alone.
"""

import ast
import copy
import difflib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
INVERTED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # whose other form is the condition turned round
KEY = re.compile(r"[\w.:/-]{1,40}")  # a text that is a key or a name, not words for people


class Mutant(NamedTuple):
    """One changed place: bytes `start` to `end` of the file become `after`."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.file}:{self.start}:{self.end}:{self.kind}:{self.after}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of one file, in the order of its text, none twice; a few do not compile."""
    found: dict[tuple[int, int, str], Mutant] = {}
    begins = [0]
    for line in source.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    text = source.encode()
    for node, kind, after in _changes(ast.parse(source)):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[node.end_lineno - 1] + node.end_col_offset
        before = text[start:end].decode()
        mutant = Mutant(file, node.lineno, kind, start, end, before, after)
        if after != before and (start, end, after) not in found:
            found[start, end, after] = mutant
    return sorted(found.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.kind, mutant.after))


def compiles(mutant: Mutant, root: Path = ROOT) -> bool:
    try:
        compile(mutant.applied((root / mutant.file).read_bytes()), mutant.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """(node, kind, the text that replaces it) for each change of each node that may be changed"""
    for node in _code(tree):
        yield from ((test, "condition", f"(not ({ast.unparse(test)}))") for test in _conditions(node) if _turns(test))
        for kind, other in (*_of_expression(node), *_of_arguments(node), *_of_statement(node)):
            text = other if isinstance(other, str) else ast.unparse(other)
            yield node, kind, text if isinstance(node, ast.stmt) else f"({text})" if _loose(node) else text


def _loose(node: ast.AST) -> bool:
    """Whether the text that replaces an expression needs brackets to stay one."""
    return not isinstance(node, (ast.Constant, ast.Call, ast.Subscript, ast.Slice))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below this one that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params") or isinstance(node, ast.JoinedStr):
            continue
        if name == "decorator_list":
            value = [argument for decorator in value if isinstance(decorator, ast.Call) for argument in decorator.args]
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _not_for_tests(node, child):
                continue
            yield child
            yield from _code(child)


def _not_for_tests(parent: ast.AST, child: ast.AST) -> bool:
    docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
    for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
    words = isinstance(parent, ast.Raise)
    strict = isinstance(child, ast.keyword) and child.arg == "strict"
    typed = isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("cast", "TypeVar", "NewType")
    listed = isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) in ("__all__", "__slots__")
    return docstring or for_types or words or strict or typed or listed


def _of_expression(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    new = copy.copy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new.ops = [COMPARISONS[type(op)]()]
            yield "comparison", new
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _is_text(new):
            new.op = ARITHMETIC[type(op)]()
            yield "arithmetic", new
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "boolean", new
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", operand
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", repr(value + 1)
        case ast.Constant(value=str(value)) if KEY.fullmatch(value):
            yield "key", repr(f"{value}_")
        case ast.Slice(lower=lower, upper=upper) if lower or upper:
            side = "lower" if lower else "upper"
            setattr(new, side, ast.BinOp(getattr(new, side), ast.Add(), ast.Constant(1)))
            yield "off by one", new


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operator joins or fills texts, or joins types: another one there is an error of Python."""
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | None))
        for side in sides
    )


def _turns(test: ast.expr) -> bool:
    """Whether a condition is turned round by no other change: `==` and `not` are, by theirs."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], INVERTED)
    return not single and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _of_arguments(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    new = copy.copy(node)
    if not isinstance(new, ast.Call) or any(isinstance(argument, ast.Starred) for argument in new.args):
        return
    if len(new.args) >= 2 and ast.unparse(new.func) not in ("isinstance", "getattr", "hasattr"):
        new.args = [new.args[1], new.args[0], *new.args[2:]]
        yield "arguments", new
    elif ast.unparse(new.func) == "range" and new.args:
        new.args = [*new.args[:-1], ast.BinOp(new.args[-1], ast.Sub(), ast.Constant(1))]
        yield "off by one", new


def _of_statement(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    new = copy.copy(node)
    match new:
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield "return value", "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Break() | ast.Continue():
            yield "statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", "pass"


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs


def sample(files: Sequence[str], count: int, seed: int, root: Path = ROOT) -> list[Mutant]:
    """`count` mutants of these files (all, if there are fewer), drawn evenly; the first n are a sample of n."""
    every = [mutant for file in sorted(files) for mutant in mutants_of(file, (root / file).read_text(encoding="utf-8"))]
    random.Random(seed).shuffle(every)
    return list(itertools.islice((mutant for mutant in every if compiles(mutant, root)), count))


def moved(mutant: Mutant, old: Path, new: Path) -> Mutant | None:
    """A mutant of the tree `old`, where its lines are in the tree `new`; None where they have been rewritten."""
    if not (new / mutant.file).is_file():
        return None
    text = (old / mutant.file).read_bytes()
    before, after = text.splitlines(), (new / mutant.file).read_bytes().splitlines()
    first, last = mutant.line - 1, text[: mutant.end].count(b"\n")
    for a, b, size in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        if a <= first and last < a + size:
            by = sum(len(line) + 1 for line in after[:b]) - sum(len(line) + 1 for line in before[:a])
            return mutant._replace(line=mutant.line + b - a, start=mutant.start + by, end=mutant.end + by)
    return None


def files_of(rooms: Sequence[str], root: Path = ROOT) -> list[str]:
    """The modules of rooms, and of the rooms within them; a room may also be one file."""
    found: set[Path] = set()
    for room in rooms:
        place = root / room
        found |= {place} if place.is_file() else set(place.rglob("*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)
