"""pyprof trend: a step over several captures, of which each part's time is known."""

from pathlib import Path

import pytest

from pyprof.prof.diff.trend_cli import main
from tests.answered import answer
from tests.prof.job.rank_files import Rank, write_job

STEP_MS = 9.7  # eight layers of 1 ms and 20 µs for the launch, a collective of 0.52 ms, an optimizer of 1.02 ms


def night(folder: Path, number: int, rank: Rank) -> Path:
    return write_job(folder, [rank], f"night{number}.json")[0]


@pytest.fixture
def nights(tmp_path: Path) -> list[Path]:
    """The same for two nights, then 0.1 ms more in each layer, then without that, and 0.005 ms more: below 1%."""
    longer = [0.0, 0.0, 100.0, 0.0, 5.0]
    return [night(tmp_path, number, Rank(longer=each)) for number, each in enumerate(longer)]


def test_the_capture_that_changed_the_step_is_named_with_its_parts(
    nights: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--json", *map(str, nights)]) == 0
    found = answer(capfd.readouterr().out.encode(), "trend")
    points = found["points"]
    assert [point["step_ns"] for point in points] == [9_700_000, 9_700_000, 10_500_000, 9_700_000, 9_740_000]
    assert [point["changed"] for point in points] == [False, False, True, True, False]
    assert [(part["name"], part["change_ns"]) for part in points[2]["because"]] == [("mm0", 400_000), ("mm1", 400_000)]
    assert [(part["name"], part["change_ns"]) for part in points[3]["because"]] == [
        ("mm0", -400_000),
        ("mm1", -400_000),
    ]
    assert found["best"] == 0
    assert found["since_best"] == pytest.approx(0.04 / STEP_MS)


def test_a_folder_is_read_in_the_order_of_numbers(nights: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    night(nights[0].parent, 10, Rank(layers=8))
    assert main(["-q", str(nights[0].parent)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:7]] == [*(f"night{n}.json" for n in range(5)), "night10.json"]
    assert "The last capture's step takes 17.860 ms, 84.1% longer than that." in lines  # eight layers more of 1.02 ms
    assert lines[2].split()[2] == "█" * 11 and lines[3].split()[2] == "+8.2%"  # night1: as long as night0
    assert "Blank: less than 1.0%, or less than the steps of a capture differ among themselves." in lines


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_lines_are_no_longer_than_the_terminal(
    columns: int, nights: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changed the step stands on lines of its own where it does not fit beside the bars."""
    monkeypatch.setattr("pyprof.command.terminal_text.output_width", lambda *_: (columns, True))
    assert main(["-q", *map(str, nights)]) == 0
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert "mm0 forward +0.400; mm1 forward +0.400" in " ".join(out.split())  # nothing is cut off
    assert ("█" in out) == (columns > 55)  # 11 of the names, 22 of the numbers, 22 of the bars


def test_the_gate_is_of_the_last_two(nights: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*map(str, nights[:3]), "--fail-if", "step > 3%"]) == 3
    assert "failed: step > 3%" in capfd.readouterr().err
    assert main([*map(str, nights), "--fail-if", "step > 3%"]) == 0


def test_one_capture_is_no_trend(nights: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(nights[0])])
    assert "expected two captures or more" in capfd.readouterr().err
