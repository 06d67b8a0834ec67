"""The fuzzer's share of every test run: 5,000 cases with fixed seeds; a sample of them as users run the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import oracle
from tests.fuzz.__main__ import BATCH, campaign, summary
from tests.fuzz.case import SHARES, Case, make
from tests.parse.kineto import kineto_file
from tests.paths import ROOT
from tests.tables import JSON, TEXT

CASES = 5000


@pytest.mark.parametrize("first", range(0, CASES, BATCH))  # one process each: to start it takes as long as 150 cases
def test_no_damaged_file_breaks_a_command(first, tmp_path):
    records = campaign(seed=2026, first=first, cases=BATCH, folder=tmp_path)
    assert len(records) == BATCH
    failed = [(record["done"], record.get("command"), record["found"]) for record in records if record.get("found")]
    assert failed == [], f"repeat one: python -m tests.fuzz --seed 2026 --only {failed[0][0]}"
    counted = summary(records)
    assert counted["by_kind"].keys() == SHARES.keys()
    assert counted["by_code"]["0"] > BATCH // 5  # damage is not so great that nothing is read


@pytest.mark.parametrize("number", range(7, CASES, 500))
def test_a_process_of_its_own_ends_in_the_same_way(number, tmp_path):
    room = oracle.Room(tmp_path)
    room.clean()
    case = make(2026, number, room.temporary)
    words = room.words(case)
    environment = {**os.environ, "TMPDIR": str(room.temporary), "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-W", "error", "-m", "pyprof", *words]
    done = subprocess.run(run, capture_output=True, env=environment, timeout=120)
    ended = oracle.Ended(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"), 0.0)
    assert oracle.complaints(room, case, words, ended) == []


def test_a_case_is_decided_by_its_number(tmp_path):
    assert make(1, 4711, tmp_path) == make(1, 4711, tmp_path)


EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XisfM"), "name": TEXT | st.sampled_from(["aten::mm", "gemm", "ProfilerStep#1"])},
    optional={
        "cat": st.sampled_from(
            ["cpu_op", "kernel", "cuda_runtime", "gpu_memcpy", "user_annotation", "python_function"]
        ),
        **dict.fromkeys(("pid", "tid", "ts", "dur", "id"), JSON | st.integers(0, 100)),
        "args": st.dictionaries(
            st.sampled_from(["correlation", "External id", "Input Dims", "grid", "block", "stream", "device", "Bytes"]),
            JSON | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=3),
        ),
    },
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(events=st.lists(EVENTS, max_size=6))
def test_any_events_are_read_or_refused(events, tmp_path_factory):
    folder = tmp_path_factory.mktemp("room")
    room = oracle.Room(folder)
    path = kineto_file.write(folder / "made.json", kineto_file.begin(0), *events)
    case = Case("kineto", "net.json", path.read_bytes(), ["prof", "FILE", "--summary"], "")
    words = room.words(case)
    assert oracle.complaints(room, case, words, oracle.run(words)) == []


def test_the_worker_writes_no_file_of_its_own(tmp_path):
    campaign(seed=3, first=0, cases=20, folder=tmp_path)
    assert {Path(name).suffix for name in os.listdir(tmp_path)} <= {"", ".jsonl"}
