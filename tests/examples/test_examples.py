"""Each program of examples/ runs as its user would run it, on the CPU, and prints numbers worked out by hand.

`lenet.py` is run by tests/capture/test_run.py and by the demo, `ci/` by tests/prof/diff/test_docs.py.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyprof
from tests.paths import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EXAMPLES = ROOT / "examples"
ON_CPU = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def run(folder: Path, *words: str, env: dict[str, str] = ON_CPU) -> str:
    """What `python WORDS` prints, in a folder of its own."""
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Runs programs as `python PROGRAM` does, each in a fork of its own and in its own folder, with one import of torch.
EACH = """
import os, runpy, sys, torch, torch._dynamo
for program, folder in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.argv, sys.path[0] = [program], os.path.dirname(program)
        with open("standard_output", "w") as out:
            os.dup2(out.fileno(), 1)
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{program} failed")
"""
SHORT = ("gpt", "autograd_function", "annotate", "torch_jit", "count_flops", "plugin/train")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """The folder of each short program, and what it printed."""
    folders = {name: tmp_path_factory.mktemp(name.replace("/", "-")) for name in SHORT}
    words = [word for name in SHORT for word in (str(EXAMPLES / f"{name}.py"), str(folders[name]))]
    if hasattr(os, "fork"):
        run(folders["gpt"], "-c", EACH, *words)
        return {name: (folder, (folder / "standard_output").read_text("utf-8")) for name, folder in folders.items()}
    return {name: (folder, run(folder, str(EXAMPLES / f"{name}.py"))) for name, folder in folders.items()}


def table(text: str, first: str) -> list[list[str]]:
    """The words of the lines after the one that begins with ``first``, up to an empty line."""
    lines = [line.split() for line in text.splitlines()]
    start = next(i for i, words in enumerate(lines) if words[:1] == [first])
    rest = lines[start + 1 :]
    return rest[: rest.index([])] if [] in rest else rest


def test_every_example_has_its_line_in_the_readme():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    linked = {(EXAMPLES / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", page)}
    programs = {
        *EXAMPLES.glob("*.py"),
        *EXAMPLES.glob("*.ipynb"),
        *EXAMPLES.glob("ci/*.*"),
        EXAMPLES / "plugin/train.py",
        EXAMPLES / "plugin/one_line.py",
    }
    assert linked == programs


@pytest.mark.parametrize("program", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_a_program_is_short(program):
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 80


def test_gpt(ran):
    """128 tokens a step. Products of a block: 2 * 128 * 64 * (192 + 64 + 256 + 256) = 12,582,912; of the head:
    2 * 128 * 64 * 1003 = 16,433,152. Two blocks and the head, three steps: 124,796,928."""
    folder, out = ran["gpt"]
    assert "100% of" in out and "of CPU time is attributed to an op" in out
    assert len(table(out, "op")) == 5  # which five, depends on how busy the machine is
    ops = pyprof.load(folder / "gpt.json.gz").ops.set_index(["op", "dir"])
    assert ops.loc[("linear", "fprop"), "flops"] == 124_796_928
    # bf16 is advised where the CPU multiplies it, and there is nothing else to advise
    nothing = out.rstrip().endswith("no advice (a run on a CPU has no GPU kernels to improve)")
    assert nothing != ('torch.autocast("cpu", dtype=torch.bfloat16)' in out)


def test_autograd_function(ran):
    """64 * 256 elements: one product each in the forward, two in the backward."""
    _, out = ran["autograd_function"]
    assert "49,152 FLOP" in out
    flops: dict[str, int] = {}
    for _, _, direction, _, flop, _ in table(out, "mod"):
        flops[direction] = flops.get(direction, 0) + int(flop)
    assert flops == {"fprop": 16384, "bprop": 32768}


def test_annotate(ran):
    _, out = ran["annotate"]
    layers = {words[0]: words for words in table(out, "layer")}
    assert list(layers) == ["student", "student:augment", "student:Sequential", "student:Sequential:1", "loss", "NaN"]
    assert int(layers["loss"][5]) > 0  # time of its backward
    assert layers["student:augment"][5] == "0"  # images need no gradient


def test_torch_jit(ran):
    """Two products of 2 * 32 * 128 * 256, sigmoid 3 and a product 1 for each of 32 * 256 elements."""
    _, out = ran["torch_jit"]
    assert re.findall(r"^(\w+): \d+ operations, ([\d,]+) FLOP", out, re.MULTILINE) == [
        ("eager", "4,227,072"),
        ("scripted", "4,227,072"),
    ]


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
def test_torch_compile(tmp_path):
    """Eager and compiled, the same products: 2 * 64 * 256 * 1024 each, two forward and three backward (the input needs
    no gradient)."""
    out = run(tmp_path, str(EXAMPLES / "torch_compile.py"))
    parts = dict(re.findall(r"^(eager|compiled): (.*?)(?:\n\n|\Z)", out, re.MULTILINE | re.DOTALL))
    count = {name: int(text.split()[0]) for name, text in parts.items()}
    assert count["compiled"] < count["eager"]
    assert {name: text.count(" 33554432 ") for name, text in parts.items()} == {"eager": 5, "compiled": 5}


@pytest.mark.slow
def test_ddp(tmp_path):
    """Two ranks, two steps, one bucket of gradients each."""
    out = run(tmp_path, str(EXAMPLES / "ddp.py"))
    assert {name.name for name in tmp_path.glob("*.json.gz")} == {"ddp.rank0.json.gz", "ddp.rank1.json.gz"}
    collectives = out.split("Collectives")[1]
    calls = [(rank, step, aten) for rank, step, aten, *_ in table(collectives, "rank")]
    assert calls == [(rank, step, "c10d::allreduce_") for rank in "01" for step in "23"]


def test_count_flops(ran):
    """Linear, forward: 2 * 128 tokens * 64 * 256, twice. The layer of 100,000 squared: 2 * 1000 * 1e10."""
    _, out = ran["count_flops"]
    counts = {(words[0], words[1]): words[3] for words in table(out, "op") if len(words) == 5}
    assert counts["linear", "forward"] == "8,388,608"
    assert "2.000e+13 FLOP in a layer of 40 GB" in out


def test_notebook(tmp_path, monkeypatch):
    """Its cells, one after the other; a cell's last expression is what the notebook would show."""
    code = ["import matplotlib; matplotlib.use('agg')"]
    for cell in json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            *body, last = ast.parse("".join(cell["source"])).body
            code += map(ast.unparse, body)
            code.append(f"print({ast.unparse(last)})" if isinstance(last, ast.Expr) else ast.unparse(last))
    (tmp_path / "cells.py").write_text("\n".join(code), encoding="utf-8")
    out = run(tmp_path, "cells.py")
    assert "<pyprof.Profile notebook.json.gz:" in out
    assert "Figure(" in out
    assert "<title>notebook.json.gz</title>" in (tmp_path / "notebook.html").read_text(encoding="utf-8")


# The plug-in: 256 * 1024 elements, two operations each; two operands and a result of 4 bytes per element.
COUNTED = ['"524288","3145728"']


@pytest.fixture
def plugin(ran):
    """The folder where its program ran, without the plug-in installed, and what it printed."""
    return ran["plugin/train"]


def test_without_a_model_the_flops_are_unknown(plugin):
    _, out = plugin
    (row,) = [words for words in table(out, "op") if "scaled_add::scaled_add" in words]
    assert row[-2:] == ["<NA>", "<NA>"]
    assert "FLOPs: unknown" in out


def test_the_model_from_a_file(plugin):
    folder, _ = plugin
    models = str(EXAMPLES / "plugin" / "scaled_add" / "flops.py")
    out = run(folder, "-m", "pyprof", "prof", "--csv", "-c", "flops,bytes", "--models", models, "plugin.json.gz")
    assert out.splitlines()[1:] == COUNTED


def test_the_flops_in_one_line(plugin):
    """2 FLOPs for each of 256 x 1024 elements; no capture says what an op of a library writes."""
    folder, _ = plugin
    models = str(EXAMPLES / "plugin" / "one_line.py")
    out = run(folder, "-m", "pyprof", "prof", "--csv", "-c", "flops,bytes", "--models", models, "plugin.json.gz")
    assert '"524288",""' in out


def test_the_model_from_an_installed_package(plugin, tmp_path):
    """Installed as pip would: the package on the path, its entry point in a *.dist-info beside it."""
    shutil.copytree(EXAMPLES / "plugin" / "scaled_add", tmp_path / "scaled_add")
    text = (EXAMPLES / "plugin" / "pyproject.toml").read_text(encoding="utf-8")
    entry = re.search(
        r'\[project\.entry-points\."(pyprof\.models)"\][^\n]*\n(scaled_add) = "(scaled_add\.flops)"\n', text
    )
    assert entry is not None
    info = tmp_path / "scaled_add-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scaled-add\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{entry[1]}]\n{entry[2]} = {entry[3]}\n", encoding="utf-8")
    folder, _ = plugin
    installed = {**ON_CPU, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    out = run(folder, "-m", "pyprof", "prof", "--csv", "-c", "flops,bytes", "plugin.json.gz", env=installed)
    assert out.splitlines()[1:] == COUNTED
