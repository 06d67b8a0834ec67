"""tools/raw_verdict.py on traces made by hand: every kind of time, and every suspicion."""

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from tools.raw_verdict import verdicts

GOLDEN = Path(__file__).parent / "golden"
BY_HAND = json.loads((GOLDEN / "verdicts_by_hand.json").read_text())
LIMITS = {"gpu", "host", "data", "sync", "communication", "launch_latency", "incomplete", "unknown"}


def event(category, name, start_us, end_us, correlation=None, **place):
    place = {"pid": 1, "tid": 1, **place}
    args = {} if correlation is None else {"correlation": correlation}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": 5e6 + start_us,
        "dur": end_us - start_us,
        "args": args,
        **place,
    }


def kernel(name, start_us, end_us, correlation, stream=7, category="kernel"):
    return event(category, name, start_us, end_us, correlation, pid=0, tid=stream)


def step(start, number):
    """A step of 1000 µs whose kinds of time stand in the comments."""
    at = start.__add__
    c = number * 10
    return [
        event("user_annotation", f"ProfilerStep#{number}", at(0), at(1000)),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at(0), at(200)),
        event("cuda_runtime", "cudaLaunchKernel", at(250), at(255), c + 1),
        kernel("gemm", at(260), at(460), c + 1),
        event("cuda_runtime", "cudaLaunchKernel", at(256), at(259), c + 2),
        kernel("ncclDevKernel_AllReduce", at(400), at(500), c + 2, stream=17),
        event("cuda_runtime", "cudaMemcpyAsync", at(490), at(560), c + 3),
        kernel("Memcpy DtoH (Device -> Pageable)", at(500), at(520), c + 3, category="gpu_memcpy"),
        event("cuda_runtime", "cudaLaunchKernel", at(600), at(605), c + 4),
        kernel("gemm", at(610), at(800), c + 4),
        event("cuda_runtime", "cudaFree", at(820), at(870), c + 6),
        event("cuda_runtime", "cudaLaunchKernel", at(890), at(895), c + 5),
        kernel("gemm", at(900), at(1000), c + 5),
    ]


@pytest.fixture
def judged(tmp_path):
    def judge(events):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        (one,) = verdicts(path)["gpus"]
        return one

    return judge


def test_the_kinds_of_time_divide_a_step(judged):
    found = judged(step(0, 1) + step(1000, 2))
    assert (found["steps"], found["loader"], found["mark"]) == (2, "single_process", "^ProfilerStep#")
    assert found["step_walls_ms"] == pytest.approx([1.0, 1.0])
    assert found["ms_per_step"] == pytest.approx(
        {
            "gpu": 0.51,  # 260..460, 500..520, 610..800, 900..1000
            "communication": 0.04,  # 460..500; 400..460 runs beside the gemm
            "loader": 0.2,  # 0..200
            "not_launched": 0.1,  # 200..255, 800..820 and 870..895
            "launched_not_started": 0.015,  # 255..260, 605..610, 895..900
            "wait": 0.04,  # 520..560: the call had been waiting since 490
            "after_wait": 0.045,  # 560..605
            "free": 0.05,  # 820..870
            "call_not_recorded": 0.0,
        }
    )
    assert found["gpu_busy_ms"] == pytest.approx(0.55)
    suspicious = found["suspicious"]
    assert (suspicious["launches"], suspicious["launches_without_work"]) == (10, 0)
    assert suspicious["first_start_delay_ms"] == pytest.approx(0.005)  # 255..260
    assert not any(suspicious[name] for name in ("zero_times", "overlapping", "late_starts", "empty_waits"))


def test_a_copy_to_the_gpu_is_no_wait_for_a_value(judged):
    upload = [
        event("cuda_runtime", "cudaMemcpyAsync", 0, 100, 1),
        kernel("Memcpy HtoD (Pageable -> Device)", 10, 90, 1, category="gpu_memcpy"),
        event("cuda_runtime", "cudaStreamSynchronize", 105, 110, 2),
        event("cuda_runtime", "cudaLaunchKernel", 150, 155, 3),
        kernel("gemm", 160, 200, 3),
    ]
    found = judged(upload)["ms_per_step"]
    assert (found["wait"], found["after_wait"]) == (0, 0)
    assert found["not_launched"] == pytest.approx(0.075)  # 0..10 and 90..155
    assert found["launched_not_started"] == pytest.approx(0.005)  # 155..160


def test_a_host_that_runs_ahead_is_paced_by_the_gpu(judged):
    ahead = []
    for number in range(3):  # marks 100 µs apart, 400 µs of GPU work a step, launched 10 µs after the mark
        ahead += [
            event("user_annotation", f"ProfilerStep#{number}", 100 * number, 100 * number + 100),
            event("cuda_runtime", "cudaLaunchKernel", 100 * number + 10, 100 * number + 15, number + 1),
            kernel("gemm", 20 + 400 * number, 420 + 400 * number, number + 1),
        ]
    found = judged(ahead)
    assert found["median_step_wall_ms"] == pytest.approx(0.1)
    assert found["paced_step_wall_ms"] == pytest.approx(1.22 / 3)  # 0..1220 for three steps
    assert found["gpu_busy_ms"] == pytest.approx(0.4)


def test_times_that_cannot_be_true(judged):
    events = [
        row
        for launch in range(5)
        for row in (
            event("cuda_runtime", "cudaLaunchKernel", 10 * launch, 10 * launch + 5, launch + 1),
            kernel("gemm", 100 + 20 * launch, 110 + 20 * launch, launch + 1),
        )
    ]
    events[1]["dur"] = 1.6e6  # the first kernel, within which four later ones of its stream start
    events[8]["ts"] = 0
    suspicious = judged(events)["suspicious"]
    assert suspicious["overlapping"] == [["7", "gemm", pytest.approx(1600), 4]]
    assert suspicious["zero_times"] == 1


def test_work_that_is_missing(judged):
    events = [
        event("cuda_runtime", "cudaGraphLaunch", 0, 10, 1),
        kernel("gemm", 20, 30, 1),
        event("cuda_runtime", "cudaStreamSynchronize", 15, 1015, 2),  # 1 ms for 10 µs of work
        event("cuda_runtime", "cudaLaunchKernel", 1100, 1110, 3),
        kernel("gemm", 81_110, 81_120, 3),  # 80 ms after its call returned
        event("cuda_runtime", "cudaLaunchKernel", 1120, 1130, 4),  # and no kernel
    ]
    suspicious = judged(events)["suspicious"]
    assert suspicious["empty_waits"] == [
        ["cudaStreamSynchronize", pytest.approx(0.015), pytest.approx(1), pytest.approx(0.01)]
    ]
    assert suspicious["late_starts"] == [[pytest.approx(81.11), pytest.approx(80)]]
    assert (suspicious["launches"], suspicious["launches_without_work"]) == (3, 1)


def test_an_export_of_nsys(tmp_path):
    path = tmp_path / "report.sqlite"
    process, thread = 5 << 24, (5 << 24) + 9
    with sqlite3.connect(path) as out:
        out.execute("CREATE TABLE StringIds (id, value)")
        out.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "gemm"), (2, "cudaLaunchKernel_v7000")])
        kinds = "CUPTI_ACTIVITY_KIND_"
        out.execute(f"CREATE TABLE {kinds}KERNEL (start, end, globalPid, deviceId, streamId, correlationId, shortName)")
        out.execute(f"CREATE TABLE {kinds}RUNTIME (start, end, globalTid, correlationId, nameId)")
        out.execute("CREATE TABLE NVTX_EVENTS (start, end, globalTid, eventType, text, textId)")
        for number in range(2):
            at = number * 1_000_000
            out.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, 59, ?, NULL)", (at, at + 900_000, thread, "step"))
            out.execute(
                f"INSERT INTO {kinds}RUNTIME VALUES (?, ?, ?, ?, 2)", (at + 300_000, at + 305_000, thread, number)
            )
            row = (at + 310_000, at + 900_000, process, 0, 7, number)
            out.execute(f"INSERT INTO {kinds}KERNEL VALUES (?, ?, ?, ?, ?, ?, 1)", row)
    out.close()
    (found,) = verdicts(path)["gpus"]
    assert (found["steps"], found["step_walls_ms"]) == (2, pytest.approx([1.0, 0.9]))
    # two steps in 0..1900 µs: 590 µs busy each; 305 and 405 µs before the launch returns; 5 µs after that
    assert found["gpu_busy_ms"] == pytest.approx(0.59)
    assert found["ms_per_step"]["not_launched"] == pytest.approx(0.355)
    assert found["ms_per_step"]["launched_not_started"] == pytest.approx(0.005)


@pytest.mark.parametrize("hand", BY_HAND, ids=lambda hand: Path(hand["capture"]).name)
def test_what_was_judged_by_hand_is_whole(hand):
    assert {hand["limit"], *hand["also"]} <= LIMITS
    assert hand["loader"] in {"none", "single_process", "workers"}
    if hand["split_ms"]:  # the parts make up a time that the verdict names
        walls = [hand["step_wall_ms"], *hand["also_step_wall_ms"]]
        assert any(sum(hand["split_ms"].values()) == pytest.approx(wall, rel=0.04) for wall in walls)


@pytest.mark.parametrize(
    "hand", [one for one in BY_HAND if one["capture"].startswith("tests/")], ids=lambda hand: Path(hand["capture"]).name
)
def test_the_captures_of_the_repository_give_the_times_judged_by_hand(hand):
    found = verdicts(GOLDEN.parent.parent / hand["capture"])["gpus"][0]
    assert (found["steps"], found["loader"]) == (hand["steps"], hand["loader"])
    assert found["median_step_wall_ms"] == pytest.approx(hand["step_wall_ms"], rel=0.01)
    assert found["gpu_busy_ms"] == pytest.approx(hand["gpu_busy_ms"] or 0, rel=0.01)
