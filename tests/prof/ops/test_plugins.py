"""Op models from outside: of installed packages, and of the file that --models names; errors say where they are."""

from pathlib import Path

import numpy as np
import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry before `fresh` looks at it)
from pyprof.errors import ModelError
from pyprof.prof.cli import main as prof
from pyprof.prof.diff.cli import main as diff
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import FAMILY, MODELS, Tensor, Work
from pyprof.prof.ops.plugins import load_model_file, load_models
from pyprof.prof.perfetto.cli import main as perfetto
from pyprof.prof.plot.cli import main as plot
from pyprof.prof.report.cli import main as report
from pyprof.table.columns import Coded, Table
from pyprof.table.netdict import write_netdict

MODULE = '''
from pyprof.prof.ops.model import Work, model

@model("mylib::scaled_add", family="custom")
def scaled_add(a, b, scale, *_):
    """2 an element"""
    return Work(2 * a.numel, a.nbytes + b.nbytes, a.nbytes)
'''


def install(folder: Path, name: str, code: str) -> None:
    (folder / f"{name}_flops.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pyprof.models]\n{name} = {name}_flops\n")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    load_models.cache_clear()
    load_model_file.cache_clear()
    before = set(MODELS)
    yield tmp_path
    load_models.cache_clear()
    load_model_file.cache_clear()
    for name in set(MODELS) - before:
        del MODELS[name], FAMILY[name]


def test_a_packages_models_are_loaded(fresh: Path) -> None:
    install(fresh, "mylib", MODULE)
    assert "mylib" in load_models()
    x = Tensor((2, 3), "float32")
    assert evaluate(find("mylib::scaled_add") or "", (x, x, 0.5)) == Work(12, 48, 24)


def test_an_error_names_the_package(fresh: Path) -> None:
    install(fresh, "broken", "import a_module_that_is_not_there\n")
    with pytest.raises(ModelError, match=r"broken_flops of broken cannot be loaded.*a_module_that_is_not_there"):
        load_models()


@pytest.fixture
def netdict(fresh: Path) -> str:
    """One call of mylib::scaled_add on two float32 tensors of 4 x 5: 2 * 20 FLOP, 3 * 20 * 4 bytes."""
    table = Table(
        1,
        {
            "kShortName": Coded.of(["scaled_add_kernel"]),
            "kDuration": np.array([1000]),
            "start": np.array([0]),
            "kind": Coded.of(["kernel"]),
            "op": Coded.of(['["scaled_add"]']),
            "dir": Coded.of(["fprop"]),
            "aten": Coded.of(["mylib::scaled_add"]),
            "sizes": Coded.of(["[[4, 5], [4, 5], []]"]),
            "dtypes": Coded.of(['["float32", "float32", ""]']),
            "args": Coded.of(['["", "", "0.5"]']),
        },
    )
    with (fresh / "net.dict").open("wb") as out:
        write_netdict(table, out)
    return str(fresh / "net.dict")


@pytest.fixture
def models(fresh: Path) -> str:
    (fresh / "flops.py").write_text(MODULE)
    return str(fresh / "flops.py")


def test_a_file_counts_what_nothing_else_counts(netdict, models, capsys):
    asked = [netdict, "--csv", "-c", "op,flops,bytes"]
    assert prof(asked) == 0
    assert capsys.readouterr().out.splitlines()[1] == '"scaled_add","",""'
    assert prof([*asked, "--models", models]) == 0
    assert capsys.readouterr().out.splitlines()[1] == '"scaled_add","40","240"'


@pytest.mark.parametrize("command", [report, perfetto, plot, diff], ids=["report", "perfetto", "plot", "diff"])
def test_every_command_that_counts_takes_the_file(command, fresh, netdict, models, capsys):
    """FLOPs per step, or rate of the op: 40 FLOP in 1000 ns are 0.04 GFLOP/s."""
    words = {
        report: [netdict, "-o", str(fresh / "page.html")],
        perfetto: [netdict, "-o", str(fresh / "trace.json")],
        plot: ["roofline", netdict, "-o", str(fresh / "x.png")],
        diff: [netdict, netdict],
    }[command]
    assert command([*words, "--json", "--models", models]) == 0
    capsys.readouterr()
    assert load_model_file.cache_info().currsize == 1
    assert find("mylib::scaled_add") == "mylib::scaled_add"


WRONG = [
    (None, ": cannot be read: No such file or directory"),
    ("import pyprof\nx = 1 +\n", ":2: is not Python: invalid syntax"),
    ("def f():\n    return 1 / 0\n\nf()\n", ":2: raised ZeroDivisionError('division by zero')"),
    ("import sys\nsys.exit('enough')\n", ":2: raised SystemExit('enough')"),
    ("x = 1\n", ': expected functions decorated with @pyprof.model("library::op"), found none'),
    ("import pyprof\n@pyprof.model('aten::mm')\ndef mine(a, b): ...\n", ":2: mm has two models: mm and mine"),
]


@pytest.mark.parametrize(("content", "complaint"), WRONG)
def test_a_file_that_is_wrong_gives_one_line(content, complaint, fresh, netdict, capsys):
    file = fresh / "flops.py"
    if content is not None:
        file.write_text(content)
    assert prof([netdict, "--csv", "--models", str(file)]) == 1
    assert capsys.readouterr().err == f"prof.py: {file}{complaint}\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('not yet')", "do not fit its model: not yet"),
        ("return None", "mylib::scaled_add: its model returned None, expected Work"),
    ],
)
def test_a_model_that_fails_leaves_its_op_uncounted_and_says_why(body, why, fresh, netdict, capsys):
    file = fresh / "flops.py"
    file.write_text(f"import pyprof\n@pyprof.model('mylib::scaled_add')\ndef mine(*_):\n    {body}\n")
    assert prof([netdict, "--models", str(file), "--explain", "1"]) == 0
    assert why in capsys.readouterr().out
    assert prof([netdict, "--csv", "-c", "flops"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == '""'


def test_explain_names_the_users_file(netdict, models, capsys):
    assert prof([netdict, "--models", models, "--explain", "1"]) == 0
    assert f"2 an element ({models}: mylib::scaled_add)" in capsys.readouterr().out
