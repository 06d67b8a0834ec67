"""prof.py --advise --timings: changes with measured durations."""

import pytest

from pyprof.prof.cli import main
from tests.answered import answer
from tests.paths import GOLDEN

VOCABULARY = str(GOLDEN / "advice" / "lm_head.before.json.gz")
TIMINGS = GOLDEN / "timings" / "h200_advice.json"


def test_a_change_with_measured_durations(capsysbinary):
    """Measured: 9.4769 ms, and 2.7482 with a padded vocabulary."""
    assert main(["--advise", "--json", "--timings", str(TIMINGS), VOCABULARY]) == 0
    (change,) = answer(capsysbinary.readouterr().out, "advice", "prof")["changes"]
    assert change["timed"] == 1.0 and change["saved_ms"] == pytest.approx(9.4769 - 2.7482, rel=0.02)
    assert main(["--advise", "--timings", str(TIMINGS), VOCABULARY]) == 0
    assert "100% of its new durations were measured" in " ".join(capsysbinary.readouterr().out.decode().split())


def test_without_timings_nothing_was_measured(capsysbinary):
    assert main(["--advise", "--json", VOCABULARY]) == 0
    (change,) = answer(capsysbinary.readouterr().out, "advice", "prof")["changes"]
    assert change["timed"] == 0.0


def test_timings_that_do_not_fit(capsys, tmp_path):
    other = tmp_path / "timings.json"
    other.write_text(TIMINGS.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA L4"), encoding="utf-8")
    assert main(["--advise", "--timings", str(other), VOCABULARY]) == 1
    assert "found those of NVIDIA L4; take a file of that GPU" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--summary", "--timings", str(TIMINGS), VOCABULARY])
    assert "--timings goes with --advise" in capsys.readouterr().err
