"""parse.py --summary of nsys exports: exact figures without reading all, and a share that says how far it is known."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from pyprof.command.envelope import plain
from pyprof.parse.attribute.contents import Contents, together
from pyprof.parse.attribute.notes import no_ops
from pyprof.parse.cli import main
from pyprof.parse.nsys import overview as nsys_brief
from pyprof.parse.nsys.overview import brief
from pyprof.parse.read import read_profile
from tests.answered import strict, valid
from tests.bench.bench_nsys import GOLDEN, repeat
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, startend, write

TIMES = 10
BARE = (3, 4, 5)  # of ten equal steps these have no ranges: 70% of the time has an op


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("brief") / "net.sqlite"
    repeat(GOLDEN, file, TIMES)
    connection = sqlite3.connect(file)
    begin, after = connection.execute("SELECT min(start), max(end) FROM NVTX_EVENTS").fetchone()
    one = (after - begin) / TIMES
    for bare in BARE:
        connection.execute(
            "DELETE FROM NVTX_EVENTS WHERE start >= ? AND start < ? AND eventType = 59",
            (begin + bare * one, begin + (bare + 1) * one),
        )
    connection.commit()
    connection.close()
    return file


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every capture is a long one."""
    monkeypatch.setattr(nsys_brief, "FEW", 0)


def test_the_share_of_a_short_capture_is_exact(long: Path) -> None:
    found = brief(long)[1].attribution
    assert found.estimate is None
    assert 100 * found.attributed_ns == 70 * found.total_ns
    assert found.reasons == {"no range around the launch": found.total_ns - found.attributed_ns}


@pytest.mark.usefixtures("sampled")
def test_the_share_of_a_long_capture_is_within_its_bounds(long: Path) -> None:
    found = brief(long)[1].attribution
    assert found.estimate is not None
    rows, looked_at, low, high = found.estimate
    assert 2_000 < rows <= 4_096
    assert 0 < looked_at < found.total_ns
    assert low < 0.7 * found.total_ns < high
    assert high - low < 0.05 * found.total_ns  # 2 * 3 * sqrt(0.7 * 0.3 / 4096) is 4.3%
    assert low < found.attributed_ns < high
    assert found.reasons == {"no range around the launch": found.total_ns - found.attributed_ns}


@pytest.mark.usefixtures("sampled")
def test_all_else_is_the_files_own(long: Path) -> None:
    notes, contents = brief(long)
    connection = sqlite3.connect(long)
    union = " UNION ALL ".join(f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMSET"))
    count, time, span = connection.execute(
        f"SELECT count(*), sum(end - start), max(end) - min(start) FROM ({union})"
    ).fetchone()
    (kernels,) = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    connection.close()
    assert (contents.rows, contents.attribution.total_ns) == (count, time)
    assert contents.kinds == {"kernel": kernels, "memset": count - kernels}
    assert [device.span_ns for device in contents.devices] == [span]
    assert (contents.gpus, notes.warnings) == ({"NVIDIA H200": 1}, [])
    # step 3 ends with the update of step 6: those between have no ranges
    assert contents.steps == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("sampled")
def test_a_page_says_that_its_share_is_an_estimate(long: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(long), "--summary"]) == 0
    lines = {line[:11].strip(): line[11:].strip() for line in capsys.readouterr().out.splitlines()}
    assert lines["attributed"].startswith("about ")
    assert lines["without"].startswith("about ") and lines["without"].endswith("%: no range around the launch")
    words = lines["estimated"].split()
    assert float(words[0].strip("%")) < 70 < float(words[2].strip("%,"))
    assert lines["estimated"].endswith("of GPU time; --exact looks at all")
    assert main([str(long), "--summary", "--exact"]) == 0
    assert "attributed  70.0% of GPU time has an op\n" in capsys.readouterr().out


@pytest.mark.usefixtures("sampled")
def test_json_says_that_its_share_is_an_estimate(long: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([str(long), str(GOLDEN), "--summary", "--json"]) == 0
    found = valid(strict(capfdbinary.readouterr().out), "parse")
    first, second = found["files"]
    assert second["estimate"] is None and second["attributed_percent"] == 100  # 1,214 rows are looked at, all
    for part in (first, found["totals"]):
        estimate = part["estimate"]
        missing = sum(each["time_ns"] for each in part["unattributed"])
        assert part["attributed_ns"] + missing == part["time_ns"]
        assert estimate["low_percent"] < part["attributed_percent"] < estimate["high_percent"]
        assert estimate["percent"] == 100 * estimate["time_ns"] / part["time_ns"] < 100
    # the second file is a tenth as long: 800 of 1,100 parts
    assert found["totals"]["estimate"]["low_percent"] < 800 / 11 < found["totals"]["estimate"]["high_percent"]
    assert main([str(long), "--summary", "--json", "--exact"]) == 0
    (file,) = valid(strict(capfdbinary.readouterr().out), "parse")["files"]
    assert (file["estimate"], file["attributed_percent"]) == (None, 70)


def test_exact_is_of_a_summary(long: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(long), "--exact"])
    assert "--exact goes with --summary" in capsys.readouterr().err


def test_a_selection_is_read_whole(sampled: None, long: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(long), "--summary", "--step", "0-2"]) == 0
    assert "attributed  100% of GPU time has an op\n" in capsys.readouterr().out


@pytest.mark.parametrize("moments", [8, 200])
@pytest.mark.usefixtures("sampled")
def test_what_is_read_of_a_real_capture_is_as_if_all_were(
    moments: int, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few moments, steps and warnings must be found that no sampled launch shows."""
    monkeypatch.setattr(nsys_brief, "MOMENTS", moments)
    seen = 0
    for file in sorted((data / "nsys").glob("*.sqlite.gz")):
        if file.name.startswith(("IhorAtlanov", "amir-ghz")):  # no events
            continue
        _, notes, table, *_ = read_profile(file)
        whole = Contents.of(table)
        estimated_notes, contents = brief(file)
        assert replace(contents, attribution=whole.attribution) == whole, file.name
        assert replace(estimated_notes, ranges=notes.ranges) == notes, file.name
        estimate = contents.attribution.estimate
        if estimate is not None:
            seen += 1
            assert estimate.low_ns <= whole.attribution.attributed_ns <= estimate.high_ns, file.name
            assert estimate.rows <= moments
    assert seen > 8


def rows(count: int, **tables: list[tuple[object, ...]]) -> dict[str, list[tuple[object, ...]]]:
    """``count`` kernels of 10 ns, launched every 100 ns from 1000 on."""
    times = [(1000 + 100 * i, i + 1) for i in range(count)]
    kernels = [kernel(start + 50, corr) for start, corr in times]
    return {KERNEL: kernels, API: [call(start, corr) for start, corr in times], **tables}


@pytest.mark.usefixtures("sampled")
def test_ranges_that_began_long_before_and_never_end_are_found(tmp_path: Path) -> None:
    opened = [push(-5, None, "aten::mm, op_id = 1"), push(1, 500_999, "mine")]
    notes, contents = brief(
        write(tmp_path / "net.sqlite", **rows(10_000, **{NVTX: opened}))
    )  # the last begins at 1,000,900
    found = contents.attribution
    assert (found.total_ns, found.attributed_ns) == (100_000, 100_000)
    assert found.estimate is not None and found.estimate.high_ns == 100_000
    assert (notes.ranges, notes.warnings) == (["mine"], [])


@pytest.mark.usefixtures("sampled")
def test_launches_on_another_thread_are_in_no_range_of_the_first(tmp_path: Path) -> None:
    tables = rows(10_000, **{NVTX: [push(0, 2_000_000, "aten::mm, op_id = 1")]})
    tables[API] = [(*row[:3], row[3] + (i % 4 == 0), *row[4:]) for i, row in enumerate(tables[API])]
    found = brief(write(tmp_path / "net.sqlite", **tables))[1].attribution
    assert found.estimate is not None
    assert found.estimate.low_ns < 75_000 < found.estimate.high_ns
    assert found.reasons == {"launched by a thread whose ops were not recorded": 100_000 - found.attributed_ns}


@pytest.mark.usefixtures("sampled")
def test_marked_steps_are_found_whatever_is_sampled(tmp_path: Path) -> None:
    marks = [push(900 + 200_000 * i, 200_900 + 200_000 * i, f"ProfilerStep#{i + 3}") for i in range(3)]
    marks.append(startend(700_000, 900_000, "ProfilerStep#9"))
    contents = brief(write(tmp_path / "net.sqlite", **rows(10_000, **{NVTX: marks})))[1]
    assert contents.steps == [3, 4, 5, 9]


@pytest.mark.usefixtures("sampled")
def test_steps_between_updates_need_a_backward_pass_that_no_sample_meets(tmp_path: Path) -> None:
    """Four updates; after the first and the third a node that launches nothing stands before the next one."""
    at = [100_000, 300_000, 500_000, 700_000]
    nvtx = [push(time, time + 50, "Optimizer.step#SGD.step") for time in at]
    nvtx += [
        push(time + 1_007, time + 1_009, "autograd::engine::evaluate_function: MmBackward0, op_id = 5", tid=3)
        for time in (at[0], at[2], at[3])
    ]
    contents = brief(write(tmp_path / "net.sqlite", **rows(10_000, **{NVTX: nvtx})))[1]
    assert contents.steps == [0, 1, 2, 3]  # the second and third update end one step; a node after the last begins one


@pytest.mark.usefixtures("sampled")
def test_ops_that_no_sample_meets_are_ops_in_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_brief, "MOMENTS", 16)
    nvtx = [push(1, 2_000_000, "mine"), push(5, 6, "aten::mm, op_id = 1", tid=9)]
    notes, contents = brief(write(tmp_path / "a.sqlite", **rows(10_000, **{NVTX: nvtx})))
    assert (notes.warnings, contents.attribution.attributed_ns) == ([], 0)
    assert contents.attribution.reasons == {"only user ranges around the launch": 100_000}
    assert brief(write(tmp_path / "b.sqlite", **rows(10_000, **{NVTX: nvtx[:1]})))[0].warnings == [no_ops("nsys")]


def test_exact_and_estimated_figures_add_up() -> None:
    from pyprof.parse.attribute.contents import Attribution, Estimate

    def part(pid: int, attribution: Attribution) -> Contents:
        return Contents({"kernel": 4}, attribution, {"H200": 1}, [pid], [], [0, pid], [])

    exact = part(1, Attribution(100, 90, False, {"a": 10}))
    guess = part(2, Attribution(200, 100, False, {"b": 70, "a": 30}, Estimate(3, 20, 80, 120)))
    found = together([exact, guess])
    assert found.attribution == Attribution(300, 190, False, {"b": 70, "a": 40}, Estimate(7, 120, 170, 210))
    assert (found.rows, found.gpus, found.pids, found.steps) == (8, {"H200": 2}, [1, 2], [0, 1, 2])
    assert together([exact, exact]).attribution == Attribution(200, 180, False, {"a": 20})


def test_a_reports_summary_is_that_of_its_export(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nsys"
    tool.write_text(f'#!/bin/sh\nfor a in "$@"; do case $a in --output=*) cp {long} "${{a#--output=}}";; esac; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    report = tmp_path / "net.nsys-rep"
    report.write_bytes(b"\x01\0\0binary")
    from pyprof.parse.read import read_brief

    notes, contents = read_brief(report)
    assert notes.file == str(report)
    assert contents == brief(long)[1]


def test_the_json_of_an_estimate_has_these_keys(sampled: None, long: Path) -> None:
    from pyprof.parse.json_document import parsed

    notes, contents = brief(long)
    (file,) = parsed([notes], [contents], None).files
    assert plain(file)["estimate"].keys() == {"rows", "time_ns", "percent", "low_percent", "high_percent"}
