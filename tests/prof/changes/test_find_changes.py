"""The list of a replayed capture: one list with one number for each change; why rules propose nothing."""

import json

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.find_changes import best_row, find_changes
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.search import EDIT_NAMES, make_plan
from pyprof.prof.cli import main as prof
from pyprof.prof.load import load_table
from pyprof.prof.planning.cli import main as plan
from pyprof.prof.replay.cut_to_steps import MOST_ROWS, step_window
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, HostTable, Table
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import run

GPT2 = "h200_gpt2_bf16.json.gz"


def changes_of(name):
    loaded = load_table(GOLDEN / name, host=True)
    return find_changes(loaded.table, annotate(loaded.table), loaded.host, name=name)


@pytest.fixture(scope="module")
def gpt2():
    return changes_of(GPT2)


def test_the_amounts_of_a_list_add_up(gpt2):
    """Each change is after those before it: what it saves is the difference of two steps' times."""
    found = gpt2.document
    assert found.not_replayed == "" and found.now is not None and found.changes
    before = found.now.ms
    for change in found.changes:
        assert change.saved_ms == pytest.approx(before - change.step.ms, abs=2e-6)
        assert change.low_ms <= change.saved_ms <= change.high_ms
        assert change.step.low_ms <= change.step.ms <= change.step.high_ms
        before = change.step.ms


def test_each_change_saves_one_percent_or_is_needed(gpt2):
    before = gpt2.document.now.ms
    for change in gpt2.document.changes:
        assert change.saved_ms >= 0.01 * before or change.needed_by
        before = change.step.ms


def test_the_first_change_saves_what_the_plan_and_the_summary_say(gpt2, capsys):
    def said(command, *options):
        assert command([*options, "--json", "-q", str(GOLDEN / GPT2)]) == 0
        return json.loads(capsys.readouterr().out)

    first = make_plan(gpt2.forecaster).changes[0]
    best = gpt2.document.changes[0]
    assert (best.rule, best.change) == (first.edit.rule, first.edit.change)
    lists = [said(prof, "--advise"), said(prof, "--summary")["changes"], said(plan)]
    assert [each["changes"][0]["saved_ms"] for each in lists] == [best.saved_ms] * 3
    assert [each["now"]["ms"] for each in lists] == [gpt2.document.now.ms] * 3


def test_every_rule_is_in_the_list_or_says_why_not(gpt2):
    found = gpt2.document
    said = [{each.rule for each in part} for part in (found.changes, found.not_chosen, found.abstained)]
    assert set.union(*said) == set(EDIT_RULES)
    assert all(each.why for each in found.abstained)
    assert set(EDIT_NAMES.values()) <= set(EDIT_RULES) and not set(EDIT_NAMES) & set(EDIT_RULES)


def test_the_rows_of_a_change_are_those_that_it_counts(gpt2):
    """GPT-2's marked step is one, so that a change is about as many rows as it says."""
    assert gpt2.document.steps <= 1
    assert [len(rows) for rows in gpt2.rows] == [change.kernels for change in gpt2.document.changes]
    texts = gpt2.of_rows(len(load_table(GOLDEN / GPT2).table)).texts()
    named = [change.rule for change, rows in zip(gpt2.document.changes, gpt2.rows, strict=True) if len(rows)]
    assert {name for text in texts if text for name in text.split(",")} == set(named)


def test_a_kernel_table_has_the_gpus_work_and_says_so():
    loaded = load_table(GOLDEN / GPT2, host=True)
    found = find_changes(loaded.table, annotate(loaded.table), None)
    assert found.forecaster is None and found.document.now is None
    assert "a kernel table has no calls of the host" in found.document.not_replayed
    assert found.document.changes and all(change.saved_ms is None for change in found.document.changes)
    assert all(0 < change.gpu_ms <= change.time_ms for change in found.document.changes)


def test_a_capture_that_lost_its_launches_is_not_replayed():
    """Without one in ten of the calls that launch, the rest would run at the wrong times."""
    loaded = load_table(GOLDEN / GPT2, host=True)
    launches = np.flatnonzero(loaded.host.coded("kind").among("launch"))
    kept = np.setdiff1d(np.arange(len(loaded.host)), launches[::10])
    host = loaded.host.take(kept)
    for key in ("record", "after"):
        host = host.with_column(key, np.full(len(host), NULL, np.int64))
    found = find_changes(loaded.table, annotate(loaded.table), host)
    assert found.forecaster is None and "has no launch in the capture" in found.document.not_replayed
    assert all(change.saved_ms is None for change in found.document.changes)


def repeated(table, times, gap):
    """A table's rows over and over, each time later, with steps, calls and links of their own."""
    kind = type(table)
    parts = []
    for k in range(times):
        part = table
        shifts = {"start": k * gap, "apiStart": k * gap, "stepStart": k * gap, "stepEnd": k * gap, "markStart": k * gap}
        shifts |= {"markEnd": k * gap, "step": 1000 * k, "corr": 1_000_000 * k, "opId": 1_000_000 * k}
        shifts |= {"record": k * len(table), "after": k * len(table)} if kind is HostTable else {}
        for key, shift in shifts.items():
            if key in part.columns and isinstance(part.columns[key], np.ndarray):
                values = part.ints(key)
                part = part.with_column(key, np.where(values == NULL, NULL, values + shift))
        parts.append(part)
    return kind.concat(parts)


def amounts(found):
    return [(change.rule, change.saved_ms, change.low_ms, change.high_ms) for change in found.document.changes]


def test_of_a_long_capture_some_steps_are_replayed():
    """GPT-2's five steps forty times: 38,400 rows, of which a window is replayed.

    The savings are to the digit those of a capture of the window alone. One step in five
    has a pause of 4 ms before it, in which the host gets no further ahead of the GPU, so that a change for the GPU
    saves less than in a capture of the five steps: that of half the step 6% less, the others within their intervals.
    Changes of less than 2% of the step may be in one list alone.
    """
    loaded = load_table(GOLDEN / "h200_diff_eager.json.gz", host=True)
    span = int((loaded.table.ints("start") + loaded.table.ints("kDuration")).max()) + 1_000_000
    table, host = repeated(loaded.table, 40, span), repeated(loaded.host, 40, span)
    window = step_window(table, annotate(table), host)
    assert isinstance(window.table, Table) and len(window.table) <= MOST_ROWS
    for key in ("record", "after"):
        links = window.host.ints(key)
        assert (links[links != NULL] < len(window.host)).all() and (links[links != NULL] >= 0).all()
    found = find_changes(table, annotate(table), host)
    short = find_changes(loaded.table, annotate(loaded.table), loaded.host)
    assert found.document.not_replayed == ""
    assert amounts(found) == amounts(find_changes(window.table, window.annotation, window.host))
    rules = [change.rule for change in short.document.changes if change.saved_ms > 0.02 * short.document.now.ms]
    assert len(rules) == 3 and [change.rule for change in found.document.changes][:3] == rules
    for long_change, change in zip(found.document.changes[:3], short.document.changes[:3], strict=True):
        if change.saved_ms > 0.5 * short.document.now.ms:
            assert long_change.saved_ms == pytest.approx(change.saved_ms, rel=0.06)
        assert change.low_ms < long_change.saved_ms < change.high_ms
    for rows, few in zip(found.rows[:3], short.rows[:3], strict=True):
        assert len(rows) >= 40 * len(few)  # all steps' rows, not those of the window


def test_a_short_capture_is_replayed_whole():
    loaded = load_table(GOLDEN / "h200_diff_eager.json.gz", host=True)
    assert len(step_window(loaded.table, annotate(loaded.table), loaded.host).rows) == len(loaded.table)


def test_the_op_of_a_change_is_that_of_the_row_that_gains_most():
    """Of two of three kernels of 1 ms, the first gains 0.1 ms and the second 0.9; of all alike, none is named."""
    made = run(*({"kShortName": "k", "aten": "aten::relu", "ns": 1_000_000} for _ in range(3)))
    edit = Edit("test", "Change it.", "", "", np.arange(2), np.array([900_000.0, 100_000.0]), np.ones(2))
    assert best_row(edit, made) == 1
    assert best_row(Edit("test", "Change it.", "", "", np.arange(3), np.zeros(3), np.ones(3)), made) == -1
