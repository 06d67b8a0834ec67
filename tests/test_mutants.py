"""The mutation tool: which changes it makes, and which tests it gives them to."""

import ast
import json
from pathlib import Path

import pytest

from tools.mutant_coverage import Coverage, bound_names, statement_lines
from tools.mutants import files_of, moved, mutants_of, sample
from tools.run_mutants import Changed, results


def changes(source: str) -> set[str]:
    """The whole text with each mutant in it."""
    return {mutant.applied(source.encode()).decode() for mutant in mutants_of("m.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"(a <= b)"}),
        ("a == b", {"(a != b)"}),
        ("a - b", {"(a + b)"}),
        ("a and b", {"(a or b)"}),
        ("not a", {"(a)"}),
        ("x = 3", {"x = 4"}),
        ("x = True", {"x = False"}),
        ("x['key']", {"x['key_']"}),
        ("x[a:]", {"x[a + 1:]"}),
        ("x[:b]", {"x[:b + 1]"}),
        ("f(a, b, c)", {"f(b, a, c)", "pass"}),
        ("range(n)", {"range(n - 1)", "pass"}),
        ("for _ in x:\n    break", {"for _ in x:\n    pass"}),
        ("x.a = b", {"pass"}),
        ("if a:\n    b = c", {"if (not (a)):\n    b = c"}),
        ("x = [a for a in b if a]", {"x = [a for a in b if (not (a))]"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("é = 'é'; x = a < b", {"é = 'é'; x = (a <= b)", "é = 'é_'; x = a < b"}),  # columns count bytes
    ],
)
def test_each_kind_of_change(source: str, expected: set[str]):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "'''A docstring.'''",
        "def f(a: int) -> str:\n    '''A docstring.'''",
        "@dataclass(frozen=True)\nclass A:\n    x: int",
        "import a.b",
        "zip(strict=True)",
        "if TYPE_CHECKING:\n    x = 3",
        "__all__ = ['a']",
    ],
)
def test_what_no_test_could_tell_is_left_alone(source: str):
    assert changes(source) <= {"pass"}


def test_the_words_of_an_error_are_left_alone_but_not_the_error():
    assert changes("raise ValueError('name', 3)") == {"pass"}


def test_a_sample_is_the_beginning_of_a_larger_one_and_depends_on_its_seed(tmp_path: Path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "m.py").write_text("x = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n")
    files = files_of(["room"], tmp_path)
    assert files == ["room/m.py"]
    ten = sample(files, 99, 1, tmp_path)
    assert len(ten) == 10
    assert sample(files, 4, 1, tmp_path) == ten[:4]
    assert sample(files, 99, 2, tmp_path) != ten


TEXT = """\
LIMIT = 3

@model("mm",
       "bmm")
def f(a=1):
    if (a and
            a > 2):
        b = g(
            a)
    return b

class C:
    x = 1
"""


@pytest.mark.parametrize(("line", "names"), [(1, {"LIMIT"}), (4, {"f"}), (5, {"f"}), (7, set()), (13, {"C", "x"})])
def test_the_names_that_a_statement_binds_at_import(line: int, names: set[str]):
    assert bound_names(ast.parse(TEXT), line) == names


@pytest.mark.parametrize(("line", "lines"), [(1, [1]), (7, [6, 7]), (9, [8, 9]), (10, [10])])
def test_the_lines_of_a_statement(line: int, lines: list[int]):
    assert list(statement_lines(ast.parse(TEXT), line)) == lines


def coverage(
    folder: Path, file: str, seconds: dict[str, float], lines: dict[str, list[int]], shared: str = ""
) -> Coverage:
    """Tests that take so long and execute these lines of m.py; ``shared``: the one that uses the fixture "run", too."""
    (folder / "m.py").write_text(TEXT)
    (folder / "cover").mkdir(exist_ok=True)
    tests = {
        name: {"seconds": s, "contexts": [name, "fixture run"] if name == shared else [name]}
        for name, s in seconds.items()
    }
    recorded = {"tests": tests, "lines": {context: {"m.py": own} for context, own in lines.items()}}
    (folder / "cover" / file).write_text(json.dumps(recorded))
    return Coverage(folder / "cover", folder)


def chosen(found: Coverage, line: int) -> list[str]:
    [mutant] = [mutant for mutant in mutants_of("m.py", TEXT) if mutant.kind == "comparison"]
    return found.of(mutant._replace(line=line))


def test_the_fastest_case_of_each_test_comes_first(tmp_path: Path):
    seconds = {"t::a[1]": 0.1, "t::a[2]": 0.2, "t::b": 0.3, "t::other": 0.1}
    found = coverage(tmp_path, "t.json", seconds, {"t::a[1]": [8], "t::a[2]": [9], "t::b": [8], "t::other": [1]})
    assert chosen(found, 9) == ["t::a[1]", "t::b", "t::a[2]"]  # fast: a[1], b, a[2]; most lines: all alike


def test_in_turn_with_the_test_that_executes_most_of_the_file(tmp_path: Path):
    found = coverage(
        tmp_path, "t.json", {"t::a": 0.1, "t::b": 0.2, "t::c": 5.0}, {"t::a": [8], "t::b": [8], "t::c": [6, 8]}
    )
    assert chosen(found, 8) == ["t::a", "t::c", "t::b"]


def test_the_test_file_of_the_modules_name_comes_before_all(tmp_path: Path):
    found = coverage(tmp_path, "t.json", {"t::a": 0.1, "test_m.py::b": 9.0}, {"t::a": [6, 8], "test_m.py::b": [8]})
    assert chosen(found, 8) == ["test_m.py::b", "t::a"]


def test_what_a_shared_fixture_executes_counts_for_each_test_that_uses_it(tmp_path: Path):
    found = coverage(
        tmp_path, "t.json", {"t::a": 0.1, "t::late": 9.0}, {"t::a": [1], "fixture run": [9]}, shared="t::late"
    )
    assert chosen(found, 9) == ["t::late"]


def test_where_no_test_executes_a_line_those_of_its_function_are_taken(tmp_path: Path):
    found = coverage(tmp_path, "t.json", {"t::a": 0.1, "t::b": 0.2}, {"t::a": [1], "t::b": [10]})
    assert chosen(found, 9) == ["t::b"]
    found = coverage(tmp_path, "t.json", {"t::a": 0.1, "t::b": 0.2}, {"t::a": [1], "t::b": [13]})
    assert chosen(found, 9) == ["t::a", "t::b"]  # or of the file


def test_what_runs_at_import_has_the_tests_of_the_lines_that_use_it(tmp_path: Path):
    (tmp_path / "other.py").write_text("def g():\n    return LIMIT\n")
    found = coverage(tmp_path, "t.json", {"t::a": 0.1, "t::b": 0.2}, {"t::a": [8]})
    found.tests["other.py", 2].add("t::b")
    found.seconds["t::b"] = 0.2
    assert chosen(found, 1) == ["t::b"]


def test_a_changed_file_is_put_back_with_its_time(tmp_path: Path):
    path = tmp_path / "m.py"
    path.write_text("x = 3\n")
    before = path.stat().st_mtime_ns
    [mutant] = mutants_of("m.py", "x = 3\n")
    with pytest.raises(KeyError), Changed(path, mutant, 1):
        assert path.read_text() == "x = 4\n"
        assert path.stat().st_mtime_ns != before
        raise KeyError
    assert path.read_text() == "x = 3\n"
    assert path.stat().st_mtime_ns == before


def test_the_last_result_of_a_mutant_counts(tmp_path: Path):
    lines = [{"key": "a", "result": "survived"}, {"key": "b", "result": "killed"}, {"key": "a", "result": "killed"}]
    (tmp_path / "results.0.jsonl").write_text('{"key": "c", "res' + "".join("\n" + json.dumps(line) for line in lines))
    assert {key: one["result"] for key, one in results(tmp_path).items()} == {"a": "killed", "b": "killed"}


def test_a_mutant_goes_with_its_lines(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    for tree, source in ((old, "é = 1\nb = 2\nc = a < b\n"), (new, "b = 2\nmore = b\nc = a < b\n")):
        tree.mkdir()
        (tree / "m.py").write_text(source, encoding="utf-8")
    first, *_, comparison = mutants_of("m.py", (old / "m.py").read_text(encoding="utf-8"))
    assert moved(first, old, new) is None  # its line is no longer there
    found = moved(comparison, old, new)
    assert found is not None and found.line == 3
    assert found.applied((new / "m.py").read_bytes()) == b"b = 2\nmore = b\nc = (a <= b)\n"
    (new / "m.py").unlink()
    assert moved(comparison, old, new) is None
