"""The steps of real captures, recomputed from the raw traces by other code, and the outputs that show them.

Here a mark reaches the GPU when the host has made it and all work *launched* before it on the main stream has ended,
by the correlation ids of launches and kernels. The code under test goes by the order of the operations on the stream.
"""

import gzip
import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest

from pyprof.prof.diff.compared_steps import find_steps
from pyprof.prof.notebook import load
from pyprof.prof.timing.steps import owners, steps
from pyprof.table.columns import NULL, Table
from pyprof.table.netdict import read_netdict, write_netdict
from pyprof.table.schema import KERNELS
from tests.paths import GOLDEN

V100, HTA = "round2/kineto_v100_workers0.json.gz", "round2/hta_negative_queue_rank0.json.gz"
CONTROL = "kineto/facebookresearch+HolisticTraceAnalysis__tests__data__trace_diff__control__control_b1ceb4c081.json.gz"
FILES = ("h200_diff_eager", "h200_diff_padded", "h200_diff_compiled", V100, HTA, CONTROL)


@dataclass(frozen=True)
class Raw:
    """One step as the trace has it, in ns since its first mark."""

    number: int
    start: float
    end: float
    host: float
    extent: float


def path_of(name: str) -> Path:
    if "/" not in name:
        return GOLDEN / f"{name}.json.gz"
    folder = os.environ.get("PYPROF_DATA")
    if not folder:
        pytest.skip("PYPROF_DATA is unset: it names the folder of captures that are not in the repository")
    return Path(folder) / name


def raw_steps(file: Path) -> list[Raw]:
    with gzip.open(file, "rt", encoding="utf-8", errors="replace") as text:
        events = [e for e in json.load(text, strict=False)["traceEvents"] if e.get("ph") == "X"]
    on_gpu = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
    marks, launched, work = [], {}, []
    for event in events:
        category, begin = str(event.get("cat", "")).lower(), 1e3 * float(event["ts"])
        end, of = begin + 1e3 * float(event["dur"]), event.get("args", {})
        found = re.fullmatch(r"ProfilerStep\s*#(\d+)", event["name"])
        if category in on_gpu:
            work.append((begin, end, of.get("stream"), category, of.get("correlation")))
        elif "runtime" in category or "driver" in category:
            launched[of.get("correlation")] = begin
        elif found and "gpu" not in category:
            marks.append((begin, end, int(found[1])))
    return from_marks(sorted(marks), launched, work)


def from_marks(marks: list[tuple[float, float, int]], launched: dict[Any, float], work: list[Any]) -> list[Raw]:
    time_of_stream: defaultdict[Any, float] = defaultdict(float)
    for begin, end, stream, category, _ in work:
        time_of_stream[stream] += end - begin if category == "kernel" else 0
    main = max(time_of_stream, key=lambda stream: time_of_stream[stream])
    always = -float("inf")  # what has no launch in the trace was launched before it

    def launch(correlation: Any) -> float:
        return launched.get(correlation, always)

    def reached(mark: float) -> float:
        return max([mark, *(end for _, end, stream, _, key in work if stream == main and launch(key) < mark)])

    zero, found = marks[0][0], []
    for place, (begin, end, number) in enumerate(marks):
        following = marks[place + 1][0] if place + 1 < len(marks) else None
        own = [row for row in work if begin <= launch(row[4]) < end]
        first, last = min(row[0] for row in own), max(row[1] for row in own)
        until = max(end, last) if following is None else reached(following)
        host = (end if following is None else following) - begin
        found.append(Raw(number, reached(begin) - zero, until - zero, host, last - first))
    return found


@pytest.fixture(scope="module", params=FILES, ids=lambda name: Path(name).name.split(".")[0][-20:])
def both(request: Any) -> tuple[list[Raw], Any]:
    file = path_of(request.param)
    return raw_steps(file), load(file)


SOME = 2000.0  # ns; a trace has its times in µs


def test_steps_begin_and_end_as_an_event_at_their_marks_would_tell(both: Any) -> None:
    raw, profile = both
    shown = profile.steps
    assert shown["step"].tolist() == [step.number for step in raw]
    starts = shown["start"].to_numpy(float)
    assert starts - starts[0] == pytest.approx([step.start - raw[0].start for step in raw], abs=SOME)
    assert shown["time"].tolist() == pytest.approx([step.end - step.start for step in raw], abs=SOME)
    assert shown["mark"].tolist() == pytest.approx([step.host for step in raw], abs=SOME)
    assert shown["extent"].tolist() == pytest.approx([step.extent for step in raw], abs=SOME)


def test_the_parts_of_a_step_sum_to_it_and_the_steps_follow_one_another(both: Any) -> None:
    _, profile = both
    shown = profile.steps
    parts = shown[["forward", "backward", "optimizer", "data", "other", "idle"]].fillna(0).sum(axis=1)
    assert (parts == shown["time"]).all()
    ends = (shown["start"] + shown["time"]).tolist()
    assert shown["start"].tolist()[1:] == ends[:-1]


def test_every_output_has_the_same_steps(both: Any) -> None:
    raw, profile = both
    spans = {step.number: step.end - step.start for step in raw}
    summary = profile.summary()
    kept = {int(part.name): part.ns for part in summary.numbers.steps}
    assert kept == {number: pytest.approx(spans[number], abs=SOME) for number in kept}
    (sentence,) = [text for text in summary.sentences if text.startswith("A step takes")]
    assert float(sentence.split()[3]) == pytest.approx(median(kept.values()) / 1e6, rel=6e-4)
    assert f"(median of {len(kept)}, " in sentence
    run = profile._capture.run
    assert run.step_ns == pytest.approx(mean(kept.values()))
    compared = find_steps("a", profile.table, lambda number: True)
    assert compared.span_ns.tolist() == pytest.approx(list(spans.values()), abs=SOME)
    total = compared.idle_ns + sum(compared.phase_ns.values())
    assert total.tolist() == compared.span_ns.tolist()


def test_a_last_step_with_a_mark_is_compared(both: Any) -> None:
    raw, profile = both
    left_out = dict(find_steps("a", profile.table).left_out)
    assert raw[-1].number not in left_out or "times the median" in left_out[raw[-1].number]


def test_the_medians_of_the_two_captures_that_showed_the_fault() -> None:
    for name, expected in ((V100, 176.275), (HTA, 216.12)):  # medians of ProfilerStep's own durations, ms
        shown = load(path_of(name)).steps
        assert median(shown["mark"]) / 1e6 == pytest.approx(expected, rel=2e-3)  # from mark to mark: 0.05 ms longer
        assert median(shown["time"]) / 1e6 == pytest.approx(expected, rel=1e-2)  # as the GPU reaches them


# A table without the marks' times: an older file


def test_an_older_net_dict_has_steps_by_gpu_extent_and_says_so(tmp_path: Path) -> None:
    whole = load(GOLDEN / "h200_diff_eager.json.gz").table
    later = ("markStart", "markEnd", "stepStart", "stepEnd")
    keys = [column.key for column in KERNELS]
    assert tuple(keys[(at := keys.index("markStart")) : at + 4]) == later
    with (tmp_path / "now.dict").open("wb") as out:
        write_netdict(whole, out)
    lines = (tmp_path / "now.dict").read_text(encoding="utf-8").splitlines()
    cut = [re.sub(r', "markStart": .*\}$', "}", line) for line in lines]
    (tmp_path / "old.dict").write_text("\n".join(cut) + "\n", encoding="utf-8")
    assert later[0] not in (tmp_path / "old.dict").read_text(encoding="utf-8")
    with (tmp_path / "old.dict").open("rb") as file:
        old = read_netdict(file, "old.dict")
    found = steps(old, owners(old)[0])
    firsts = [int(old.ints("start")[old.ints("step") == step.number].min()) for step in found]
    assert [step.start_ns for step in found] == firsts
    assert [step.span_ns for step in found[:-1]] == np.diff(firsts).tolist()
    assert found[-1].span_ns == found[-1].extent_ns
    assert {step.mark_ns for step in found} == {None}
    sentence = "No mark says when a step begins, so each is taken to begin with its first operation."
    assert sentence in load(tmp_path / "old.dict").summary().sentences


def test_rows_outside_of_all_steps_are_no_idle_time_of_a_step() -> None:
    rows = {  # step 1 from 0 to 100, step 2 to 150; a row without a step runs from 60 to 70
        "start": [10, 60, 110],
        "kDuration": [20, 10, 30],
        "step": [1, NULL, 2],
        "markStart": [0, NULL, 100],
        "markEnd": [100, NULL, 150],
        "stepStart": [0, NULL, 100],
        "stepEnd": [100, NULL, 150],
    }
    table = Table(3, {key: np.array(values, np.int64) for key, values in rows.items()})
    first, second = steps(table, np.zeros(3, np.int64))
    assert (first.span_ns, first.idle_ns, first.mark_ns, first.extent_ns) == (100, 70, 100, 20)
    assert (second.span_ns, second.idle_ns, second.mark_ns, second.extent_ns) == (50, 20, 50, 30)
