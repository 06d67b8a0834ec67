"""The mutation tool: which changes it makes, and which tests it gives them to."""

import ast
import json
from pathlib import Path

import pytest

from tools.mutants import files_of, mutants_of, sample
from tools.run_mutants import Changed, Coverage, bound_names, results, statement_lines


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


def test_tests_of_a_line_come_fastest_first_and_each_function_once_before_its_other_cases(tmp_path: Path):
    (tmp_path / "m.py").write_text(TEXT)
    cover = tmp_path / "cover"
    cover.mkdir()
    tests = {"t::a[1]": 0.1, "t::a[2]": 0.2, "t::b": 0.3, "t::other": 0.1, "t::late": 9.0}
    recorded = {
        "tests": {name: {"seconds": s, "contexts": [name, "fixture run"]} for name, s in tests.items()},
        "lines": {"t::a[1]": {"m.py": [8]}, "t::a[2]": {"m.py": [9]}, "t::b": {"m.py": [8]}, "t::other": {"m.py": [1]}},
    }
    recorded["tests"]["t::other"]["contexts"] = ["t::other"]
    (cover / "t.json").write_text(json.dumps(recorded))
    mutant = next(m for m in mutants_of("m.py", TEXT) if m.kind == "comparison")
    assert Coverage(cover, tmp_path).of(mutant._replace(line=9)) == ["t::a[1]", "t::b", "t::a[2]"]
    recorded["lines"]["fixture run"] = {"m.py": [9]}  # what a shared fixture runs counts for all tests that use it
    (cover / "t.json").write_text(json.dumps(recorded))
    assert Coverage(cover, tmp_path).of(mutant._replace(line=9)) == ["t::a[1]", "t::b", "t::late", "t::a[2]"]


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
    (tmp_path / "results.0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert {key: one["result"] for key, one in results(tmp_path).items()} == {"a": "killed", "b": "killed"}
