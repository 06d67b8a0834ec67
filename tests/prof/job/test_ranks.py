"""pyprof ranks: a job of which each rank's delays are known."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyprof.errors import InputError
from pyprof.prof.cli import main as prof
from pyprof.prof.job import joint_ranks
from pyprof.prof.job import whole_job as whole
from pyprof.prof.job.cli import main
from pyprof.prof.job.job_folder import Job, read_job
from pyprof.prof.job.json_document import _missing, job_document
from pyprof.prof.job.partition import failed, read_tables
from pyprof.prof.job.sources import rank_in_name, sources
from pyprof.prof.load import load_table
from pyprof.prof.ranks.merged_ranks import job_tables, merged
from pyprof.prof.ranks.pace import pace
from pyprof.prof.ranks.path_sentences import path_sentences
from pyprof.prof.ranks.rank_clocks import CLOCKS, clocks
from pyprof.prof.ranks.slow_ranks import slow_ranks, waits
from tests.answered import answer
from tests.parse.kineto.kineto_file import begin, call, kernel, write
from tests.parse.nsys import nsys_file
from tests.paths import GOLDEN, ROOT
from tests.prof.job.rank_files import BYTES, MOVING_US, Rank, write_job


def made(folder: Path, *files: object, options: tuple[str, ...] = ("--workers", "1")) -> Job:
    assert main(["-q", *map(str, files), "-o", str(folder / "job"), *options]) == 0
    return read_job(folder / "job")


@pytest.mark.parametrize(
    ("odd", "cause", "kernels"),
    [
        (Rank(pause=6000), "host", 0),
        (Rank(longer=750), "work", 0),
        (Rank(layers=7), "kernels", 6),
    ],
)
def test_the_rank_that_others_wait_for_is_named_with_the_cause(
    tmp_path: Path, odd: Rank, cause: str, kernels: int
) -> None:
    """Six of eight kernels of 1 ms more, 0.75 ms more in each of eight, or a pause: 6 ms per step in each case.

    Of the three steps, the first is left out.
    """
    slow = slow_ranks(made(tmp_path, *write_job(tmp_path, [Rank(), Rank(), odd, Rank()])).ranks)
    assert [(each.rank, each.peers, each.times) for each in slow] == [(2, 3, 2)]
    assert slow[0].held_ns == pytest.approx(6e6, rel=0.03)  # 20 µs for the launch of each further kernel
    found = slow[0].causes
    assert [(each.cause, each.kernels) for each in found] == [(cause, kernels)]
    assert found[0].ns == pytest.approx(6e6, rel=0.01)
    assert found[0].places[0].op == "mm0"


def test_a_job_that_marks_no_steps_has_none_in_its_sentences(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four ranks in one file of nsys, in lines of 60 characters; all-reduces of data parallel training come first."""
    monkeypatch.setattr("pyprof.command.terminal_text.NO_TERMINAL", 60)
    made(tmp_path, GOLDEN / "h200x4_collectives.sqlite.gz")
    lines = capfd.readouterr().out.splitlines()
    text = " ".join(" ".join(lines).split())
    assert "each of 3 other ranks waits 0.575 ms for it (4% of the capture)." in text
    # Rank 2 has one gap of 0.3789 ms, whose last 0.0221 follow the launch of the kernel that ends it.
    assert "- its GPU is idle 0.357 ms longer in pauses of the host" in text
    assert "Collectives, per rank:" in lines and "per step" not in text and "a step" not in text
    head = lines.index("Collectives, per rank:")
    assert max(map(len, lines[:head])) <= 60
    assert lines[head + 2].endswith("  all_reduce (638.. data parallel)")


def test_a_job_in_step_holds_nobody_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(pause=100), Rank()]))  # 0.1 ms of 10 is below 2%
    assert slow_ranks(job.ranks) == []
    assert "No rank holds the others up for 2% of a step or longer." in capfd.readouterr().out


def test_two_slow_ranks_are_both_named(tmp_path: Path) -> None:
    """Rank 3 comes last by 1 ms. Rank 1 is late by 5 ms, too, but nobody waits for it."""
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(pause=5000), Rank(), Rank(pause=6000)]))
    assert [(each.rank, each.held_ns) for each in slow_ranks(job.ranks)] == [(3, (6e6 + 1e6 + 6e6) / 3)]
    table = waits(job.ranks)
    assert (table.ranks, table.steps) == ([0, 1, 2, 3], [0, 1, 2])
    assert table.held_ns == [[6_000_000] * 3, [1_000_000] * 3, [6_000_000] * 3, [0] * 3]


def test_without_a_rank_of_the_group_nothing_is_said_of_waiting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = write_job(tmp_path, [Rank(), Rank(pause=6000), Rank()])
    job = made(tmp_path, *files[:2])
    assert slow_ranks(job.ranks) == []
    out = capfd.readouterr().out
    assert "Which rank is waited for is unknown" in out
    assert main([str(tmp_path / "job"), "--json"]) == 0
    document = answer(capfd.readouterr().out.encode(), "ranks")
    assert [(kind["complete"], kind["wait_ns"], kind["bus_gbps"]) for kind in document["collectives"]] == [
        (False, None, None)
    ]


def test_communication_of_unknown_collectives_is_not_said_to_be_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """NCCL's kernels of send and receive, 50 µs, without records of their calls, as in older traces."""
    sends = {**kernel(10, 50, 1), "name": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"}
    made(tmp_path, write(tmp_path / "net.json", begin(0), call(0, 1), sends))
    out = capfd.readouterr().out
    assert "Communication takes 0.05 ms per rank" in out
    assert "Which kernels of communication belong together is not recorded" in out and "no collectives" not in out


def test_the_document_of_a_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An all-reduce of n ranks sends 2 (n - 1) / n of the buffer: of 4 ranks 1.5 MiB in 0.5 ms are 3.1457 GB/s."""
    made(tmp_path, *write_job(tmp_path, [Rank(), Rank(), Rank(pause=6000), Rank()]))
    capfd.readouterr()
    assert main([str(tmp_path / "job"), "--json"]) == 0
    document = answer(capfd.readouterr().out.encode(), "ranks")
    assert (document["ranks"], document["missing"], document["steps"]) == ([0, 1, 2, 3], [], 3)
    assert document["kernels"] == 4 * 3 * 10
    [kind] = document["collectives"]
    assert (kind["op"], kind["ranks"], kind["calls"], kind["complete"]) == ("all_reduce", 4, 1, True)
    assert kind["bus_gbps"] == pytest.approx(1.5 * BYTES / (MOVING_US * 1000))
    assert kind["wait_ns"] == pytest.approx(3 * 6e6 / 4)


# Where the rank's number comes from


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank12.json", 12),
        ("s3://bucket/run/rank-3.Jul_15.pt.trace.json.gz", 3),
        ("job/rank_7/trace.json", 7),
        ("job/RANK5_of_8.json", 5),
        ("crank7.json", None),
        ("frank.json", None),
        ("h200x2_gpt2_ddp_rank1.json.gz", 1),
        ("trace_4a9c9ae.json", None),
    ],
)
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("names", "recorded", "ranks", "source"),
    [
        ("rank{}.json", True, [0, 1], "the file's name"),
        ("trace{}.json", True, [0, 1], "the capture"),
        ("trace{}.json", False, [0, 1], "the order of the files"),
    ],
)
def test_the_source_of_the_rank_is_said(
    tmp_path: Path, names: str, recorded: bool, ranks: list[int], source: str
) -> None:
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(pause=6000)], names, recorded))
    assert [(each.ranks, each.rank_from) for each in job.files] == [([rank], source) for rank in ranks]
    assert slow_ranks(job.ranks)[0].rank == 1


@pytest.mark.parametrize(("known", "ranks"), [((), 1), ((1,), 1), ((0, 1), 2)])
def test_processes_whose_ranks_are_unknown_count_as_one_rank_and_this_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], known: tuple[int, ...], ranks: int
) -> None:
    """An export of nsys with two processes, of which ``known`` ones have a rank."""
    rows = {
        nsys_file.KERNEL: [nsys_file.kernel(100, 1, pid=7), nsys_file.kernel(100, 1, pid=8)],
        nsys_file.API: [nsys_file.call(10, 1, pid=7), nsys_file.call(10, 1, pid=8)],
        "MPI_RANKS": [(nsys_file.process(7 + rank), rank) for rank in known],
    }
    file = nsys_file.write(tmp_path / "net.sqlite", **rows)
    assert main([str(file), "-o", str(tmp_path / "job"), "--workers", "1"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith(f"{ranks} rank")
    said = "warning: 2 processes of a file count as one rank: the capture does not say which ranks they are"
    assert (said in err) == (ranks == 1)


def test_a_rank_that_stands_twice_is_read_once(tmp_path: Path) -> None:
    files = write_job(tmp_path, [Rank(), Rank()])
    copy = shutil.copy(files[0], tmp_path / "copy_of_rank0.json")
    job = made(tmp_path, *files, copy)
    assert [bool(each.error) for each in job.files] == [False, False, True]
    assert "expected another rank" in job.files[2].error


def test_patterns_and_folders_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files = write_job(tmp_path, [Rank()] * 11)
    (tmp_path / "notes.txt").write_text("no capture")
    assert sources([str(tmp_path)]) == sources([str(tmp_path / "*.json")]) == [str(file) for file in files]
    assert sources([f"file://{tmp_path}/rank1*.json"]) == [f"file://{files[1]}", f"file://{files[10]}"]


def test_urls_are_read(tmp_path: Path) -> None:
    write_job(tmp_path, [Rank(), Rank(pause=6000)])
    assert [each.rank for each in slow_ranks(made(tmp_path, f"file://{tmp_path}/rank*.json").ranks)] == [1]


# Runs that end early, files that are damaged


def test_a_second_run_reads_only_what_has_changed(tmp_path: Path) -> None:
    files = write_job(tmp_path, [Rank(), Rank(pause=6000)])
    made(tmp_path, *files)
    (tmp_path / "job" / "job.json").unlink()  # as if it had been interrupted
    assert [each.reused for each in made(tmp_path, *files).files] == [True, True]
    write_job(tmp_path, [Rank(), Rank(pause=3000)])
    job = made(tmp_path, *files)
    assert not job.files[1].reused
    assert slow_ranks(job.ranks)[0].held_ns == 3e6


def test_a_damaged_file_is_reported_and_the_others_are_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = write_job(tmp_path, [Rank(), Rank(pause=6000)])
    bad = tmp_path / "rank2.json"
    bad.write_text('{"traceEvents": 7}')
    job = made(tmp_path, *files, bad)
    assert [each.rank for each in slow_ranks(job.ranks)] == [1]
    out = capfd.readouterr().out
    assert "Left out, since not readable: 1 of 3 files" in out
    assert str(bad) in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected a job's job.json"),
        ('{"format": "pyprof/job", "version": 4}', "of version 4"),
        ('{"format": "pyprof/job", "version": 3, "merged": "../x"}', "found a path"),
        ('{"format": "pyprof/job", "version": 3, "merged": "none"}', "make the job anew"),
    ],
)
def test_a_damaged_job_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str, words: str) -> None:
    (tmp_path / "job.json").write_text(content)
    assert main([str(tmp_path)]) == 1
    err = capfd.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = write_job(tmp_path, [Rank(), Rank()])
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("words")
    assert main([*map(str, files), "-o", str(other)]) == 1
    assert "expected a new folder or a job's, found thesis.txt" in capfd.readouterr().err
    assert [entry.name for entry in other.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["none.json", "-o", "job"], 1, "expected a capture, or a pattern or folder of captures"),
        (["rank0.json"], 2, "give the job's folder with -o"),
        (["rank0.json", "-o", "job", "--scheduler", "tcp://x:1", "--workers", "2"], 2, "leave them out"),
        (["rank0.json", "-o", "job", "--memory", "much"], 2, "expected a size such as 4GiB"),
        (["rank0.json", "-o", "none/job"], 1, "there is no folder"),
    ],
)
def test_wrong_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    write_job(tmp_path, [Rank()])
    monkeypatch.chdir(tmp_path)
    if code == 2:
        with pytest.raises(SystemExit, match="2"):
            main(words)
    else:
        assert main(words) == code
    assert message in capfd.readouterr().err


def test_options_for_workers_are_said_to_be_without_effect_where_none_works(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, *write_job(tmp_path, [Rank()]))
    capfd.readouterr()
    assert main([str(tmp_path / "job"), "--workers", "2", "--memory", "1GiB"]) == 0
    assert "pyprof ranks: warning: --workers, --memory: without effect: the captures" in capfd.readouterr().err
    assert main([str(tmp_path / "job")]) == 0
    assert "without effect" not in capfd.readouterr().err


# Merging, and workers in other processes


def test_ranks_merge_in_any_order_and_in_a_tree(tmp_path: Path) -> None:
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(pause=900), Rank(layers=5), Rank()]))
    a, b, c, d = (job_tables(read_tables(job.folder, each)) for each in job.files)
    at_once, in_a_tree = merged([a, b, c, d]), merged([merged([d, b]), merged([c]), a])
    for name in ("collectives", "work", "idle"):
        first, second = (getattr(each, name).to_pylist() for each in (at_once, in_a_tree))
        assert sorted(first, key=str) == sorted(second, key=str)
    assert at_once.collectives["arrived"].to_pylist() == [4, 4, 4]


def tables_of(job: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of all tables of a job by their file's name."""
    found = {}
    for file in sorted(job.rglob("*.parquet")):
        rows = pq.read_table(file).to_pylist()
        found[str(file.relative_to(job))] = sorted(rows, key=str) if "merged" in file.parent.name else rows
    return found


def test_a_cluster_of_a_scheduler_and_two_workers_makes_the_same_job_though_one_worker_dies(tmp_path: Path) -> None:
    files = write_job(tmp_path, [Rank(), Rank(pause=6000), *[Rank()] * 10])
    made(tmp_path, *files)
    here = tables_of(tmp_path / "job")
    shutil.rmtree(tmp_path / "job")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    address = tmp_path / "scheduler.json"
    scheduler = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
    ]
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        "--nthreads",
        "1",
        "--no-dashboard",
        "--scheduler-file",
    ]
    started = [
        subprocess.Popen(
            [*command, str(address)], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for command in (scheduler, worker, worker)
    ]
    try:
        deadline = time.monotonic() + 60
        while not address.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        at = json.loads(address.read_text())["address"]
        words = ["ranks", "-q", *map(str, files), "-o", str(tmp_path / "job"), "--scheduler", at]
        run = subprocess.Popen([sys.executable, "-m", "pyprof", *words], env=environment, stdout=subprocess.DEVNULL)
        while not list(tmp_path.glob("job/*.ranks")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(started[1].pid, signal.SIGKILL)  # the worker and its nanny
        assert run.wait(120) == 0
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert tables_of(tmp_path / "job") == here


def test_the_workers_of_this_machine_make_the_same_job(tmp_path: Path) -> None:
    files = write_job(tmp_path, [Rank(), Rank(pause=6000), Rank()])
    made(tmp_path, *files)
    here = tables_of(tmp_path / "job")
    shutil.rmtree(tmp_path / "job")
    made(tmp_path, *files, options=("--workers", "2", "--memory", "1GiB"))
    assert tables_of(tmp_path / "job") == here


# Other commands on a job


def test_a_jobs_table_has_one_clock(tmp_path: Path) -> None:
    """Rank 1's clock is an hour ahead. The all-reduces end together, and so they do in the job's table."""
    files = write_job(tmp_path, [Rank(), Rank(pause=6000)])
    trace = json.loads(files[1].read_text())
    for event in trace["traceEvents"]:
        if "ts" in event and event["name"] != "Record Window End":
            event["ts"] += 3.6e9
    files[1].write_text(json.dumps(trace))
    job = made(tmp_path, *files)
    ahead = clocks(job.clocks, [0, 1])
    assert ahead[0].ahead_ns == 0
    assert ahead[1].within_ns == 0  # the made-up ends are the same to the nanosecond
    table = load_table(job.folder).table
    last = {}
    for rank in (0, 1):
        rows = (table.ints("rank") == rank) & table.coded("comm").where(bool)
        last[rank] = (table.ints("start") + table.ints("kDuration"))[rows].tolist()
    assert last[0] == last[1]
    assert len(last[0]) == 3


def test_clocks_are_between_what_both_directions_say() -> None:
    """Rank 1's clock is 5 µs ahead. Who has waited ends 14 µs later, once each: the truth is in the middle."""
    rows = {
        "rank": [1, 0],
        "last": [0, 1],
        "ahead_ns": [19_000.0, 9_000.0],
        "within_ns": [300.0, 200.0],
        "calls": [4, 4],
    }
    found = clocks(pa.table(rows, schema=CLOCKS), [0, 1])
    assert (found[1].ahead_ns, found[1].within_ns) == (5_000.0, 14_000.0)
    few = rows | {"calls": [40, 4], "within_ns": [300.0, 900.0]}  # the second direction has a tenth of the first's
    found = clocks(pa.table(few, schema=CLOCKS), [0, 1])
    assert (found[1].ahead_ns, found[1].within_ns) == (19_000.0, 300.0)
    similar = rows | {"ahead_ns": [5_100.0, -5_000.0]}  # they agree within what is uncertain: the more certain one
    found = clocks(pa.table(similar, schema=CLOCKS), [0, 1])
    assert (found[1].ahead_ns, found[1].within_ns) == (5_000.0, 200.0)


def test_a_job_says_its_critical_path(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A step: 6 ms of pause, 8 kernels of 1.02 ms, the all-reduce's launch, 0.5 ms of moving, 1.02 ms of an optimizer.

    The made-up hosts launch each kernel when it begins without waiting in a call, so each has a path of its own.
    """
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(), Rank(pause=6000), Rank()]))
    step = 6e6 + 8 * 1.02e6 + 0.02e6 + 0.5e6 + 1.02e6
    assert job.path is not None
    assert (job.path.ranks, job.path.of_ranks, job.path.steps) == ([0, 1, 2, 3], 4, [0, 1, 2])
    assert sum(each.ns for each in job.path.captured) == pytest.approx(step, rel=0.001)
    assert job.path.replayed_ns == pytest.approx(job.path.recorded_ns, rel=0.001)
    said = "by a replay of 4 ranks together, whose clocks agree within 0 µs, steps 0 to 2. Its critical path: rank "
    assert said in " ".join(capfd.readouterr().out.split())
    assert read_job(job.folder).path == job.path
    assert prof(["-q", "--summary", str(job.folder)]) == 0
    assert said in " ".join(capfd.readouterr().out.split())


def test_a_rank_that_cannot_be_read_again_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rank 1's table goes while the job is made; the path is that of the other three."""
    read = joint_ranks._read_cut

    def without_rank_1(job: str, wanted: joint_ranks._Wanted) -> joint_ranks._Cut:
        if "rank1" in wanted.folder:
            Path(job, f"{wanted.folder}.pyprof", "kernels.parquet").unlink()
        return read(job, wanted)

    monkeypatch.setattr(joint_ranks, "_read_cut", without_rank_1)
    files = write_job(tmp_path, [Rank(), Rank(), Rank(pause=6000), Rank()])
    assert main([*map(str, files), "-o", str(tmp_path / "job"), "--workers", "1"]) == 0
    out, err = capfd.readouterr()
    assert "by a replay of 3 of 4 ranks together" in " ".join(out.split())
    (warning,) = [line for line in err.splitlines() if "critical path" in line]
    assert f"{files[1]}: rank 1 is not in the critical path: " in warning
    assert "kernels.parquet" in warning


def test_a_large_job_is_replayed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 ranks, two of 30 operations in 3 steps: those that others wait for."""
    monkeypatch.setattr(joint_ranks, "MOST_ROWS", 50)
    odd = {5: Rank(pause=6000), 9: Rank(pause=3000)}
    job = made(tmp_path, *write_job(tmp_path, [odd.get(rank, Rank()) for rank in range(12)]))
    assert job.path is not None
    assert 5 in job.path.ranks
    assert (len(job.path.ranks), job.path.of_ranks, len(job.path.steps)) == (2, 12, 2)
    assert next(path_sentences(pace(job.ranks, job.path))).startswith("Without the profiler a step takes ")
    assert "a replay of 2 of 12 ranks together" in next(path_sentences(pace(job.ranks, job.path)))


def test_every_command_that_reads_a_table_reads_a_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank(pause=6000)]))
    loaded = load_table(job.folder, host=True)
    assert np.bincount(loaded.table.ints("rank")).tolist() == [30, 30]  # 3 steps of 10 kernels each
    assert loaded.host is not None
    assert np.bincount(loaded.host.ints("rank")).tolist() == [30, 30]
    capfd.readouterr()
    assert prof(["-q", "--group", "rank", "--csv", str(job.folder)]) == 0
    assert [line.split(",")[:2] for line in capfd.readouterr().out.splitlines()] == [
        ['"Rank"', '"Count"'],
        ['"0"', '"30"'],
        ['"1"', '"30"'],
    ]


def test_a_job_of_too_many_rows_names_what_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank()]))
    monkeypatch.setattr(whole, "MOST_ROWS", 59)
    with pytest.raises(InputError, match=r"at most 59 GPU operations, found 60: give one rank's folder.*pyprof ranks"):
        load_table(job.folder)


def test_folders_of_others_are_never_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A checkout with nothing but .git, and a folder whose name begins like one of a job's."""
    files = write_job(tmp_path, [Rank(), Rank()])
    for name in (".git", "merged-data"):
        (tmp_path / "other" / name).mkdir(parents=True)
        assert main([*map(str, files), "-o", str(tmp_path / "other"), "--workers", "1"]) == 1
        assert f"expected a new folder or a job's, found {name}" in capfd.readouterr().err
        (tmp_path / "other" / name).rmdir()
    job = made(tmp_path, *files)
    theirs = [job.folder / ".git", job.folder / "merged-data"]
    left = job.folder / ".rank0.json-0123abcd.pyprof.x_y12345"
    for folder in (*theirs, left):
        folder.mkdir()
    made(tmp_path, *files)
    assert [folder.exists() for folder in (*theirs, left)] == [True, True, False]


def test_a_rank_with_a_huge_number_takes_no_memory(tmp_path: Path) -> None:
    """Found by the fuzzer: a file of 3 KB said that it was rank 2,147,483,647, and 1.2 GB of numbers were missing."""
    assert _missing([0, 2, 5]) == [1, 3, 4]
    assert _missing([1, 2**31 - 1]) == [0, *range(2, 1001)]
    assert _missing([]) == []


def test_a_job_without_marked_steps_is_replayed_by_few_ranks() -> None:
    """Nothing can be cut from captures without steps: of eight ranks with 20,000 operations each, two have 40,000."""
    part = failed("", "")
    places = {rank: msgspec.structs.replace(part, ranks=[rank], rows=20_000) for rank in range(8)}
    assert joint_ranks._bounded(range(8), places, []) == ([0, 1], ())
    steps = [(number, 1.0) for number in range(20)]  # 1,000 operations per step: six steps of all eight have 48,000
    assert joint_ranks._bounded(range(8), places, steps) == (list(range(8)), (0, 1, 2, 3, 4, 5))


def test_the_flops_of_a_large_job_exceed_64_bits(tmp_path: Path) -> None:
    """1,024 ranks with 10 steps of 5 s at 400 TFLOP/s: 2e19, of which 64 bits hold 9.2e18."""
    job = made(tmp_path, *write_job(tmp_path, [Rank(), Rank()]))
    work = job.tables.work
    work = work.set_column(work.column_names.index("flops"), "flops", pa.array([4 * 10**18] * len(work)))
    large = replace(job, tables=replace(job.tables, work=work))
    assert job_document(large).flops == 4 * 10**18 * len(work) > 9.3e18
