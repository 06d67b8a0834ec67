"""A plan's text: code that is longer than a line, and another GPU."""

import re

from pyprof.prof.planning.cli import main
from pyprof.prof.planning.print_plan import _code
from tests.paths import GOLDEN

LENET = str(GOLDEN / "h200_lenet.sqlite.gz")


def test_code_is_broken_at_blanks_alone():
    code = "model = torch.compile(model, mode='max-autotune-no-cudagraphs', dynamic=False)"
    lines = _code("+", code, 60)
    assert len(lines) > 1 and not any(line.endswith("-") for line in lines)
    assert " ".join(" ".join(line.split()).removeprefix("+ ") for line in lines) == code


def test_a_plan_for_another_gpu_says_so(capsysbinary):
    assert main([LENET, "-q", "--device", "NVIDIA L4"]) == 0
    told = " ".join(capsysbinary.readouterr().out.decode().split())
    assert re.search(r"On (NVIDIA )?L4 in place of (NVIDIA )?H200: [\d.]+ ms, in four of five cases", told)
    assert "Each kernel keeps the share of its GPU's limit that it reached; the host is taken to be the same." in told
