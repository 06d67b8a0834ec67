"""What is told of an incomplete capture: the first line says it, idle time and advice are withheld everywhere."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import pyprof
from pyprof.parse import cli as parse
from pyprof.prof import cli as prof
from pyprof.prof.diff import cli as diff
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.table.losses import Loss, losses
from pyprof.table.read_table import read_table
from tests.parse.kineto.kineto_file import Event, begin, call, kernel, op, write

WHY = "1 of 4 kernel launches has no kernel in the capture"
FIRST = (
    f"This is an incomplete capture: {WHY}. Idle time and advice would be false, and are withheld. To record it anew: "
)
SHAPES = {"Input_Dims": [[4096, 4095], [4095, 4096]], "Input_type": ["float", "float"]}


def events(lost: int | None) -> list[Event]:
    """Four products, 1 ms each, 1 ms apart; the kernel of one of them is lost."""
    found: list[Event] = []
    for number in range(4):
        found += [op("aten::mm", 1000 + 100 * number, 50, **SHAPES), call(1010 + 100 * number, number + 1)]
        if number != lost:
            found.append(kernel(2000 + 2000 * number, 1000, number + 1, "ampere_sgemm_128x64_nn"))
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    device = [{"id": 0, "name": "NVIDIA H200"}]
    return write(tmp_path / "net.json", begin(900), *events(1), deviceProperties=device)


def test_the_first_line_on_a_terminal(file, capsys):
    assert prof.main(["--summary", "-w", "1000", str(file)]) == 0
    told = capsys.readouterr()
    first, second, rest = re.split(r"\n(?=3 kernels on)|\n(?=•)", told.out, maxsplit=2)
    assert first.splitlines()[0].startswith(f"This is an incomplete capture: {WHY}.")
    assert " ".join(first.split()).startswith(FIRST)
    assert second.startswith("3 kernels on one NVIDIA H200.")
    assert not any(word in rest for word in ("idle", "busy", "utilisation", "What to change", "/s"))
    assert "warning" not in told.err  # the first line says it


def test_json_says_why(file, capsys):
    assert prof.main(["--summary", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    numbers = found["numbers"]
    assert found["headline"].startswith(FIRST)
    assert [loss["why"] for loss in numbers["incomplete"]] == [WHY]
    assert numbers["incomplete"][0]["remedy"].startswith("record fewer steps")
    assert [numbers[key] for key in ("busy_ns", "idle_ns")] == [None] * 2
    assert (numbers["step"]["limit"], numbers["step"]["shares"], numbers["step"]["devices"]) == ("incomplete", [], [])
    assert [phase["idle_ns"] for phase in numbers["phases"]] == [None]
    (device,) = numbers["devices"]
    keys = (
        "busy_ns kernel_ns sm_efficiency utilisation_percent busy_percent tflop_per_s gb_per_s mfu_percent mbu_percent"
    )
    assert [device[key] for key in keys.split()] == [None] * 9
    assert numbers["waits"]["causes"] == numbers["waits"]["syncs"] == found["changes"]["changes"] == []
    assert numbers["flop"] == 3 * 2 * 4096 * 4095 * 4096  # what is on record is told


def test_advice_is_withheld_with_the_reason(file, capsys):
    assert prof.main(["--advise", str(file)]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(FIRST)
    assert prof.main(["--advise", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [loss["why"] for loss in found["incomplete"]] == [WHY]
    assert (found["changes"], found["now"]) == ([], None)


def test_a_complete_capture_has_them(tmp_path, capsys):
    whole = write(
        tmp_path / "whole.json", begin(900), *events(None), deviceProperties=[{"id": 0, "name": "NVIDIA H200"}]
    )
    assert prof.main(["--summary", "--json", str(whole)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["numbers"]["incomplete"] == []
    assert found["numbers"]["idle_ns"] == 3_000_000  # between four kernels of 1 ms
    assert found["numbers"]["waits"]["causes"]


@pytest.mark.parametrize("name", ["net.dict", "net.dict.gz", "net.parquet", "net.pyprof"])
def test_tables_carry_it(file, tmp_path, name, capsys):
    table = tmp_path / name
    assert parse.main([str(file), "-o", str(table)]) == 0
    assert f"warning: This is an incomplete capture: {WHY}." in capsys.readouterr().err
    assert prof.main(["--summary", "-w", "1000", str(table)]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(FIRST)
    assert prof.main(["-c", "idx,idle,idle_why", "--csv", str(table)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1:] == ['"1","",""', '"2","",""', '"3","",""']
    assert told.err.count("This is an incomplete capture") == 1


def test_a_selection_of_rows_carries_it(file, tmp_path):
    table = tmp_path / "net.dict"
    assert parse.main([str(file), "--from", "3ms", "-o", str(table)]) == 0
    kept = read_table(table)
    assert len(kept) == 2
    assert [loss.why for loss in losses(kept)] == [WHY]


def test_one_rank_of_several(file, tmp_path):
    whole = write(tmp_path / "whole.json", begin(900), *events(None))
    found = pyprof.load(file, whole)
    assert found.summary().numbers.incomplete == losses(found.table) == (Loss(WHY, losses(found.table)[0].remedy),)
    assert len(losses(found.where("rank == 1").table)) == 0


def test_notebook_and_page(file, tmp_path):
    found = pyprof.load(file)
    summary = found.summary()
    assert summary.headline.startswith(FIRST) and str(summary).replace("\n", " ").startswith(FIRST)
    assert found.cards == [] and math.isnan(summary.numbers.mean("mfu"))
    page = found.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert WHY in page and '"incomplete":true' in page.replace(" ", "")


def test_the_summary_of_parse(file, capsys):
    assert parse.main(["--summary", str(file)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"incomplete  This is an incomplete capture: {WHY}. To record it anew: ")
    assert not any("busy" in line for line in rest)


def test_a_false_cell_is_refused(file, tmp_path, capsys):
    table = tmp_path / "net.dict"
    assert parse.main([str(file), "-o", str(table)]) == 0
    text = table.read_text(encoding="utf-8")
    table.write_text(re.sub(r'"incomplete": \[\[[^]]*\]\]', '"incomplete": [["why"]]', text), encoding="utf-8")
    capsys.readouterr()
    assert prof.main(["--summary", str(table)]) == 1
    assert "column incomplete: expected a list of pairs of texts" in capsys.readouterr().err


def test_every_field_that_may_be_withheld_is_said_to_be(file):
    numbers: Summary = pyprof.load(file).summary().numbers
    assert numbers.span_ns == 7_000_000  # from 2 to 9 ms: the third kernel of record ends then
    assert np.isnan([numbers.flop_per_s, numbers.byte_per_s]).all()


def test_other_outputs_have_no_idle_time(file, tmp_path, capsys):
    assert pyprof.load(file).steps["idle"].isna().all()
    whole = write(tmp_path / "whole.json", begin(900), *events(None))
    assert diff.main([str(whole), str(file)]) == 0
    told = capsys.readouterr()
    out = " ".join(told.out.split())
    assert out.startswith("B is an incomplete capture, so this does not compare the programs.")
    assert "idle" not in out
    assert f"net.json: This is an incomplete capture: {WHY}." in told.err


def test_replay_and_plan_refuse_an_incomplete_capture(file, capsys):
    """Both rest on what ran after what, which is not on record."""
    from pyprof.prof.planning import cli as plan
    from pyprof.prof.replay import cli as replay

    for command in (replay.main, plan.main):
        assert command([str(file), "-q"]) == 1
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1
        assert (
            f"{file}: expected a complete capture, found an incomplete capture: {WHY}; to record it anew: " in told.err
        )


def test_the_figure_of_phases_has_no_idle_time(file):
    from pyprof.prof.load import load_table
    from pyprof.prof.plot import phases
    from pyprof.prof.plot.style import Look

    table = load_table(str(file)).table
    found = phases.numbers(table)
    assert found.incomplete and [step.idle_ns for mine in found.steps for step in mine] == [None]
    figure = phases.draw(found, Look())
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["forward"]
    assert "This is an incomplete capture: idle time is not drawn." in phases.caption(found)
    whole = write(file.with_name("whole.json"), begin(900), *events(None))
    found = phases.numbers(load_table(str(whole)).table)
    assert not found.incomplete and [step.idle_ns for mine in found.steps for step in mine] == [3_000_000]
