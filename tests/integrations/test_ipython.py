"""The magic %%pyprof in a real IPython shell."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
testing = pytest.importorskip("IPython.testing.globalipapp", reason="IPython is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "pyprof")
    yield shell
    InteractiveShell.clear_instance()


CELL = "import torch\nx = torch.ones(3, 4)\ny = torch.nn.functional.linear(x, torch.ones(5, 4))\n"


def test_a_cell_is_profiled_and_kept_in_a_variable(shell, capsys, tmp_path):
    file = tmp_path / "cell.json.gz"
    shell.run_cell_magic("pyprof", f"run -o {file}", CELL)
    assert shell.user_ns["y"].shape == (3, 5)  # the cell's own variables are there
    kernels = shell.user_ns["run"].kernels
    assert int(kernels[kernels.op == "linear"].flops.sum()) == 2 * 3 * 4 * 5
    assert "CPU ops on the CPU" in capsys.readouterr().out
    assert file.is_file()


def test_steps_of_a_cell(shell):
    cell = (
        "import torch\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(5):\n    optimizer.zero_grad()\n    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    shell.run_cell_magic("pyprof", "--warmup 2 --steps 1", cell)
    kernels = shell.user_ns["profile"].kernels
    assert int((kernels.op == "linear").sum()) > 0
    assert len(set(kernels.step)) <= 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--no-such", "unrecognized arguments"),
        ("not-a-name", "is no name for a variable"),
        ("--steps many", "expected a number"),
        ("-o /no/such/folder/x.json", "no folder"),
    ],
)
def test_wrong_usage_is_one_line_and_runs_nothing(shell, capsys, line, message):
    shell.user_ns.pop("ran", None)
    shell.run_cell_magic("pyprof", line, "ran = True")
    printed = capsys.readouterr().out
    assert message in printed and len(printed.splitlines()) == 1
    assert "ran" not in shell.user_ns


def test_a_cell_that_fails_shows_its_error_and_what_was_collected(shell, capsys):
    shell.run_cell_magic("pyprof", "half", f"{CELL}\n1 / 0")
    printed = capsys.readouterr().out
    assert "ZeroDivisionError" in printed and "CPU ops on the CPU" in printed
    assert "half" in shell.user_ns
