"""The table of the captures that show each rule (tools/rules_shown.py), from answers written by hand."""

import json

import pytest

from tests.paths import GOLDEN
from tools.rules_shown import KEPT, PAGE, captures, judged, page, program_of, rules, shown, spoken

ANSWERS = {
    "golden/advice/mixed.before.json.gz": {"changes": [["amp", "Use mixed precision", 5.9, 5.0]]},
    "golden/plan/held6/bert.pyprof": {
        "changes": [["cuda_graph", "Make a graph", 0.0, 1.0], ["amp", "Use mixed precision", 90.0, 80.0]]
    },
    "golden/graphs/h200_decode_steps.json.gz": {"changes": [["amp", "", 1.0, 1.0]]},
    "golden/graphs/h200_decode_eager.json.gz": {"changes": [["amp", "", 1.0, 1.0]], "error": "more than 120 s"},
    "golden/advice/measured.json": {"error": "no capture"},
}


@pytest.mark.parametrize(
    ("capture", "program"),
    [
        ("golden/advice/lm_head.after.json.gz", "advice/lm_head"),
        ("golden/cpu/conv_threads.json.gz", "cpu/conv"),
        ("golden/plan/held7/mixture.pyprof", "held7/mixture"),
        ("golden/plan/nsys/pretrain.sqlite.gz", "held8/pretrain"),
        ("golden/ranks/joint/ddp.data.pyprof", "ranks: GPT of four layers"),
        ("golden/ranks/nsys/host.rank1.sqlite.gz", "ranks: GPT of four layers"),
        ("data/kineto/h200x2_gpt2_ddp_rank0.json.gz", "GPT-2"),
        ("data/round3/h100_timesformer.json.gz", "h100_timesformer"),
        ("golden/h200_tiny_pqtdir", "h200_tiny_pqtdir"),
    ],
)
def test_recordings_of_one_program_are_one(capture, program):
    assert program_of(capture) == program


def test_the_rules_of_a_list_speak():
    assert spoken(ANSWERS["golden/plan/held6/bert.pyprof"]) == {"cuda_graph", "amp"}


def test_captures_programs_and_others_are_counted_apart():
    # amp: four captures; of decoding two are one program; advice/mixed was written to measure it: 4, 3, 2
    (amp,) = (each for each in shown(ANSWERS) if each.rule == "amp")
    assert (len(amp.captures), len(amp.programs), len(amp.foreign)) == (4, 3, 2)
    assert amp.measured["advice"] == 1  # tests/golden/advice/measured.json has one change to mixed precision


def test_the_page_names_what_no_capture_shows():
    told = page(ANSWERS)
    assert "4 captures of 3 programs were judged. For 1 of them, 120 s of processor\ntime were not" in told
    shown_, _, silent = told.partition("## Removed")[0].partition("## Shown by no capture")
    assert "| `amp` | GPU | 4 | 3 | 2 |" in shown_ and "| `cuda_graph` | GPU | 1 | 1 | 1 | held6/bert |" in shown_
    assert set(rules()) - {"amp", "cuda_graph"} == {line.split("`")[1] for line in silent.splitlines() if "`" in line}


def test_the_page_is_that_of_the_answers_that_are_kept():
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(KEPT.read_text(encoding="utf-8")))


def test_a_capture_is_judged_in_a_process_of_its_own():
    # LeNet: 57 operations of 3 µs, so a CUDA graph; and a file that is no capture
    found = judged(GOLDEN / "h200_lenet_fp32.json.gz")
    assert found["changes"][0][0] == "cuda_graph"
    assert "measured.json: expected" in judged(GOLDEN / "advice" / "measured.json")["error"]


def test_a_container_is_one_capture(tmp_path):
    for name in ("a.pyprof/kernels.parquet", "b.json.gz", "hostile/c.json", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.name for file in captures([tmp_path])] == ["a.pyprof", "b.json.gz"]
