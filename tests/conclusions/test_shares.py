"""What a step's time is spent on, against other code that reads the raw files (tools/raw_verdict.py)."""

from pathlib import Path

import pytest

from tests.paths import GOLDEN
from tools.audit_shares import POINTS, shares

# Captures of which pyprof knows more than the plain reader: what prepares a batch without a DataLoader counts as
# loading data (h100_timesformer), and work that a split trace lacks is waited for (mi300x_sglang_split).
OURS_TELLS_MORE = ("h100_timesformer", "mi300x_sglang_split")


def marked(folder: Path, pattern: str):
    found = [shares(file) for file in sorted(folder.glob(pattern))]
    return [each for each in found if each is not None]


def test_golden_captures():
    found = marked(GOLDEN, "h200_*.json.gz") + marked(GOLDEN, "graphs/*.json.gz")
    assert len(found) >= 10
    assert [str(each) for each in found if each.points > POINTS] == []


def test_captures_of_other_people(data: Path):
    found = marked(data / "round3", "*.json.gz")
    assert len(found) >= 5
    wrong = [str(each) for each in found if each.points > POINTS and not each.file.name.startswith(OURS_TELLS_MORE)]
    assert wrong == []


@pytest.mark.parametrize(("wait", "points"), [(0, 0.0), (400, 40.0)])
def test_a_difference_is_told(wait, points, tmp_path, monkeypatch):
    """The raw file says that the host waits for 400 of 1,000 ms in which pyprof has it launch nothing."""
    from tools import audit_shares

    file = next(GOLDEN.glob("h200_diff_eager.json.gz"))
    ours = shares(file).ours
    ms = {name: 0.0 for names in audit_shares.KINDS.values() for name in names}
    ms |= {names[0]: 10 * ours[cause] for cause, names in audit_shares.KINDS.items()}
    ms["gpu"], ms["wait"] = ms["gpu"] - wait, ms["wait"] + wait
    monkeypatch.setattr(audit_shares, "verdicts", lambda *_, **__: {"gpus": [{"device": "0", "ms_per_step": ms}]})
    assert shares(file).points == pytest.approx(points)
