"""The command pyprof diff: forms, exit codes, errors."""

import io
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from pyprof import testing
from pyprof.command import schemas as answers
from pyprof.errors import InputError
from pyprof.prof.diff import cli
from pyprof.prof.table.condition import ConditionError
from pyprof.table.netdict import write_netdict
from tests.prof.diff.diff_rows import NO_TC, mm, row, table_of
from tests.prof.diff.test_gate import A, B

FASTER = [[mm(50, layer="GPT:h.0:up"), row(40, "relu", layer="GPT:h.0", phase="backward", gap=10)]]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return _write(tmp_path / "a.dict", A), _write(tmp_path / "b.dict", B)


def _write(path: Path, steps) -> str:
    with path.open("wb") as out:
        write_netdict(table_of(steps), out)
    return str(path)


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_difference_is_told_from_the_top(files, capsys):
    code, out, err = run(capsys, *files)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "B is 0.0200 ms per step slower: 0.1500 -> 0.1700 ms (+13.3%; noise unknown: one step each)."
    assert "Where the difference comes from, ms per step" in lines
    cells = [line.split() for line in lines]
    assert ["h.*:up", "linear", "fwd", "0.1000", "0.1200", "+0.0200", "+20.0%"] in cells
    assert ["h.*", "relu", "bwd", "0.0400", "0.0300", "-0.0100", "-25.0%"] in cells
    assert ["idle", "0.0100", "0.0200", "+0.0100", "+100.0%"] in cells
    assert ["step", "0.1500", "0.1700", "+0.0200", "+13.3%"] in cells


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (["step > 20%"], 0),
        (["step > 10%"], 3),
        (["step > 20%", "op:linear > 10%"], 3),  # any of them
        (["step > 20%", "op:linear > 30%"], 0),
    ],
)
def test_a_gate_that_fails_exits_with_3(files, capsys, conditions, code):
    options = [word for condition in conditions for word in ("--fail-if", condition)]
    got, out, err = run(capsys, *files, *options)
    assert got == code
    assert ("pyprof diff: failed: " in err) == (code == 3)
    assert ("failed: " in out) == (code == 3)
    assert run(capsys, *files, *options, "-q")[2] == ""


def test_errors_exit_with_1_and_wrong_usage_with_2(files, tmp_path, capsys):
    code, out, err = run(capsys, files[0], str(tmp_path / "none.dict"), "--fail-if", "step > 3%")
    assert (code, out) == (1, "")
    assert err.startswith(f"pyprof diff: {tmp_path / 'none.dict'}: ")
    assert err.count("\n") == 1
    code, _, err = run(capsys, *files, "--fail-if", "op:linaer > 3%")
    assert code == 1
    assert "no op or aten op in either is like 'linaer'" in err
    for wrong in (["--fail-if", "step > 3"], ["--step", "x"], ["--top", "0"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*files, *wrong])
        assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        cli.main(["-", "-"])
    assert ended.value.code == 2


def test_json_agrees_with_its_schema_and_sums(files, capsys):
    code, out, _ = run(capsys, *files, "--json", "--fail-if", "step > 10%")
    found = json.loads(out)
    jsonschema.Draft202012Validator(answers.schemas("diff")).validate(found)
    assert (code, found["schema"], found["failed"]) == (3, "pyprof/diff/1", True)
    assert found["input"] == [{"name": name, "profiler": None} for name in files]
    assert found["step"]["change_ns"] == 20_000
    for table in ("entries", "phases", "kinds"):
        assert sum(part["change_ns"] for part in found[table]) == 20_000, table
        assert sum(part["before_ns"] for part in found[table]) == 150_000, table
    assert found["step"]["noise_ns"] is None
    (gate,) = found["gates"]
    assert (gate["condition"], gate["failed"], gate["tests"][0]["change"]) == ("step > 10%", True, 20_000)


def test_json_errors_are_json(files, tmp_path, capsys):
    code, out, _ = run(capsys, files[0], str(tmp_path / "none.dict"), "--json")
    found = json.loads(out)
    assert (code, found["schema"], found["error"]["exit_code"]) == (1, "pyprof/error/1", 1)
    assert [each["name"] for each in found["input"]] == [files[0], str(tmp_path / "none.dict")]


def test_a_table_on_standard_input(files, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(files[0]).read_bytes())))
    code, out, _ = run(capsys, "-", files[1])
    assert code == 0
    assert out.startswith("B is 0.0200 ms per step slower")


def test_outputs_are_not_overwritten_unasked(files, tmp_path, capsys):
    page = tmp_path / "x.html"
    assert run(capsys, *files, "-o", str(page))[:2] == (0, "")
    assert page.read_text().startswith("<!doctype html>")
    code, _, err = run(capsys, *files, "--html", str(page))
    assert (code, "exists; give --force" in err) == (1, True)
    text = tmp_path / "x.txt"
    assert run(capsys, *files, "--html", str(page), "-o", str(text), "--force")[0] == 0
    assert text.read_text().startswith("B is")


def test_steps_can_be_chosen(tmp_path, capsys):
    a, b = (_write(tmp_path / f"{name}.dict", [[mm(100)], [mm(us)], [mm(us)]]) for name, us in (("a", 50), ("b", 60)))
    out = run(capsys, a, b, "--step", "1-2")[1]
    assert out.startswith("B is 0.0100 ms per step slower: 0.0500 -> 0.0600 ms")
    code, _, err = run(capsys, a, b, "--step", "7")
    assert code == 1 and "it has steps 0 to 2, and --step asks for others" in err


def test_top_and_all(files, capsys):
    few, every = (run(capsys, *files, *options)[1] for options in (["--top", "1"], ["--all"]))
    assert "h.* relu" in few and "h.* relu" in every  # one that is left over needs no row of its own
    assert "h.*:up linear" in few


# For tests


def test_no_regression_passes_and_returns_the_comparison(files):
    found = testing.assert_no_regression(files[0], Path(files[1]), "step > 20%", "tc_lost > 0")
    assert found.step.change == 20_000


def test_a_regression_fails_with_its_numbers_and_the_report(files):
    with pytest.raises(AssertionError) as error:
        testing.assert_no_regression(*files, "step > 20%", "op:linear > 10%")
    lines = str(error.value).splitlines()
    assert lines[0] == "failed: op:linear > 10%: 0.100 -> 0.120 ms, +0.020 ms (+20.0%), noise unknown: one step each"
    assert any(line.startswith("B is 0.0200 ms per step slower") for line in lines)


def test_lost_tensor_cores_are_a_regression(tmp_path):
    a, b = (
        _write(tmp_path / f"{i}.dict", [[mm(5, name=name)] if name else [mm(5)]]) for i, name in enumerate(("", NO_TC))
    )
    with pytest.raises(AssertionError, match="failed: tc_lost > 0: 1"):
        testing.assert_no_regression(a, b, "tc_lost > 0")
    testing.assert_no_regression(b, a, "tc_lost > 0")


def test_what_cannot_be_tested_is_an_error(files, tmp_path):
    with pytest.raises(ValueError, match="give a condition"):
        testing.assert_no_regression(*files)
    with pytest.raises(ConditionError, match="expected a change"):
        testing.assert_no_regression(*files, "step > 3")
    with pytest.raises(InputError):
        testing.assert_no_regression(files[0], tmp_path / "none", "step > 3%")
