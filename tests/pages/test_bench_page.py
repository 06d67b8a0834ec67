"""docs/how-to/bench.md: its Python runs, and the command takes its command lines."""

import re
import shlex

import pytest

from pyprof.benchmark.bench_command import build_parser
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "bench.md").read_text(encoding="utf-8")
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
LINES = [line for line in SHELL.splitlines() if line.startswith("pyprof bench")]


@pytest.mark.torch
@pytest.mark.slow
def test_the_page_s_code_runs(capsys):
    pytest.importorskip("torch")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "bench.md", "exec"), {})  # noqa: S102  (our own page)
    assert capsys.readouterr().out.startswith("linear on ")


@pytest.mark.parametrize("line", LINES)
def test_the_command_takes_the_page_s_lines(line):
    args = build_parser().parse_args(shlex.split(line)[2:])
    assert bool(args.statement) != bool(args.replay)
