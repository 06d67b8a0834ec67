"""No two statements about a capture exclude each other, and all outputs name the same changes with the same amounts."""

import json
from pathlib import Path

import pytest

from pyprof.prof.cli import main as prof
from pyprof.prof.planning.cli import main as plan
from tests.conclusions.exclusive import PAIRS, contradictions
from tests.paths import GOLDEN

SMALL = 400_000  # bytes of the file
CAPTURES = sorted(
    file
    for pattern in (
        "*.json.gz",
        "advice/*.before.json.gz",
        "changes/*.json.gz",
        "cpu/*.json.gz",
        "graphs/*steps.json.gz",
    )
    for file in GOLDEN.glob(pattern)
    if file.stat().st_size < SMALL
)
PUBLIC = sorted(("round3", "round2"))


def said(capsys, file, *options, command=prof):
    assert command([*options, "-q", str(file)]) in (0, 1)
    return capsys.readouterr().out.replace("\n", " ")


def test_a_pair_is_found_only_where_both_are_said():
    assert len(PAIRS) >= 20
    assert contradictions("The GPU limits the step: x. The host limits the step: y.") == ["gpu and host limit the step"]
    assert contradictions("The GPU limits the step: the GPU works for 3.0 ms of 4.0 ms.") == []


def all_agree(capsys, file):
    """The texts have no contradiction; summary, advice and plan have the same list."""
    texts = [said(capsys, file, "--summary", "-w", "400"), said(capsys, file, "--advise", "-w", "400")]
    assert contradictions(" ".join(" ".join(text.split()) for text in texts)) == []
    advice = json.loads(said(capsys, file, "--advise", "--json"))
    summary = json.loads(said(capsys, file, "--summary", "--json"))
    amounts = [(each["rule"], each["title"], each["gpu_ms"], each["saved_ms"]) for each in advice["changes"]]
    assert [
        (each["rule"], each["title"], each["gpu_ms"], each["saved_ms"]) for each in summary["changes"]["changes"]
    ] == amounts
    if advice["now"] is not None:
        planned = json.loads(said(capsys, file, "--json", command=plan))
        assert [
            (each["rule"], each["title"], each["gpu_ms"], each["saved_ms"]) for each in planned["changes"]
        ] == amounts
        assert planned["now"] == advice["now"]
    for each in advice["changes"]:
        assert texts[1].count(each["title"][:40]) >= 1


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: file.name)
def test_what_is_said_of_a_golden_capture(capsys, file):
    all_agree(capsys, file)


def test_what_is_said_of_public_captures(capsys, data: Path):
    for folder in PUBLIC:
        for file in sorted((data / folder).glob("*.json.gz")):
            if file.stat().st_size < 4 * SMALL:
                all_agree(capsys, file)
