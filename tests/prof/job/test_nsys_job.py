"""Jobs of nsys, a database per rank: two H200 with an injected straggler (tests/device/job_programs.py --nsys).

Of DDP's steps, two count: rank 1 sleeps 6 ms between forward and backward pass, or rank 0 has two further blocks. The
exports are cut to three steps, those with more layers without ranges of ops that launch nothing, such as aten::view.
"""

from pathlib import Path

import pytest

from pyprof.prof.job.job_folder import Job
from pyprof.prof.job.json_document import JobDocument, job_document
from pyprof.prof.ranks.pace_records import SlowRank
from tests.paths import GOLDEN
from tests.prof.job.test_ranks import made

FOLDER = GOLDEN / "ranks" / "nsys"
SLEPT_NS = 6e6


def job(folder: Path, case: str) -> JobDocument:
    found: Job = made(folder, *sorted(FOLDER.glob(f"{case}.rank*.sqlite.gz")))
    assert [each.rank_from for each in found.files] == ["the file's name"] * 2
    return job_document(found)


def slowest(document: JobDocument) -> SlowRank:
    assert len(document.slow) == 1
    return document.slow[0]


def test_a_host_that_sleeps(tmp_path: Path) -> None:
    document = job(tmp_path, "host")
    slow = slowest(document)
    assert (slow.rank, slow.causes[0].cause) == (1, "host")
    place = slow.causes[0].places[0]
    assert place.op == "ones_like"  # the backward pass's first op
    assert place.ns == pytest.approx(SLEPT_NS, rel=0.05)
    assert document.path is not None
    assert document.path.on[0].rank == 1
    assert document.path.on[0].host > SLEPT_NS
    assert document.path.replayed_ns == pytest.approx(document.path.recorded_ns, rel=0.001)


def test_more_layers(tmp_path: Path) -> None:
    """29.6 ms is DDP's step without further blocks or profiler (tests/golden/ranks/truth.json), 41.2 with them."""
    document = job(tmp_path, "layers")
    slow = slowest(document)
    assert (slow.rank, slow.causes[0].cause) == (0, "kernels")
    assert slow.causes[0].kernels == 201
    assert "extra" in slow.causes[0].places[0].where
    assert document.path is not None
    [alike] = [each for each in document.path.like_others if each.saves]
    assert alike.rank == 0
    assert alike.low_ns <= 29.66e6 <= alike.high_ns
    assert document.path.step_ns == pytest.approx(41.2e6, rel=0.05)
