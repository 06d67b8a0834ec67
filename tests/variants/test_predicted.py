"""The column `predicted` and `--plan` of pyprof try: captures of a few kernels, and runs of made-up times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write
from tests.variants.test_try import TRAINING, pyprof_try

torch = pytest.importorskip("torch")

from pyprof.variants.cli import _Trial, build_parser, main  # noqa: E402
from pyprof.variants.json_document import MeasuredStep, PredictedStep, TriedVariant, TryDocument  # noqa: E402
from pyprof.variants.predict import Predictor  # noqa: E402
from pyprof.variants.print_try import try_lines  # noqa: E402
from pyprof.variants.run_record import OPTIMIZER, Facts, RunRecord  # noqa: E402
from pyprof.variants.run_variants import Ran  # noqa: E402

GRADIENT = [1024, 1024]


def capture(folder: Path) -> Path:
    """A step of 1.4 ms that the GPU limits: it fills a gradient with zeros (0.1), multiplies (1), and adds to it (0.3).

    With gradients set to None, neither the fill nor the addition is there, so that 1 of 1.4 ms remains.
    """
    types = ["float", "float", "Scalar"]
    return write(
        folder / "net.json",
        begin(0),
        op("aten::zero_", 0, 20, Input_Dims=[GRADIENT], Input_type=["float"]),
        op("aten::fill_", 2, 16, Input_Dims=[GRADIENT, []], Input_type=["float", "Scalar"]),
        call(5, 1),
        op("aten::mm", 30, 20),
        call(35, 2),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 60, 30, AUTOGRAD),
        op("torch::autograd::AccumulateGrad", 62, 26, AUTOGRAD, Sequence_number=1),
        op("aten::add_", 64, 20, AUTOGRAD, Input_Dims=[GRADIENT, GRADIENT, []], Input_type=types),
        call(68, 3, AUTOGRAD),
        kernel(100, 100, 1, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>(int)"),
        kernel(200, 1000, 2),
        kernel(1200, 300, 3, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)"),
    )


MS = {  # of the runs, by their changes
    "": 10.0,
    "zero_grad": 9.0,
    "optimizer": 9.5,
    "amp": 8.0,
    "amp+tf32": 7.99,
    "amp+optimizer": 6.0,
    "amp+optimizer+compile": 6.5,
}


class MadeUp:
    """A Runner whose runs take the times of MS, +-0.5%, without running anything."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, changes: Any, shown: bool = False) -> Ran:
        self.ran.append("+".join(changes))
        ns = MS[self.ran[-1]] * 1e6
        facts = Facts(gpu="NVIDIA H200", capability=[9, 0], models=["Net"], dtypes=["float32"], unfused=1, zero_fills=1)
        record = RunRecord(
            OPTIMIZER, [round(ns * (1 + 0.0005 * k)) for k in range(-10, 11)], 10, True, [], 1, facts, []
        )
        return Ran(0, record, "")


@pytest.fixture
def train(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with a script whose runs take the times of MS, and a capture."""
    monkeypatch.setattr("pyprof.variants.run_variants.Runner", lambda *_: MadeUp())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    return capture(tmp_path)


@pytest.mark.usefixtures("train")
def test_the_predicted_step_is_the_measured_one_less_what_the_change_removes(capsys: Any) -> None:
    assert main(["--json", "--repeat", "2", "--capture", "net.json", "--with", "zero_grad,optimizer", "train.py"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["as_it_is"]["runs_ms"][0] == 10  # the first run's: the prediction is made after it
    zero_grad, optimizer = document["variants"]
    assert zero_grad["predicted"]["ms"] == pytest.approx(10 / 1.4, rel=1e-3)
    assert zero_grad["predicted"]["low_ms"] < zero_grad["predicted"]["ms"] < zero_grad["predicted"]["high_ms"]
    assert optimizer["predicted"] is None  # the capture has none
    assert document["input"] == [{"name": "net.json", "profiler": None}]
    measured = [document["as_it_is"], *(each["measured"] for each in document["variants"])]
    assert [each["runs_ms"] for each in measured] == [[10, 10], [9, 9], [9.5, 9.5]]


@pytest.mark.usefixtures("train")
def test_with_plan_its_changes_are_tried_and_the_table_has_the_prediction(capsys: Any) -> None:
    assert main(["--repeat", "1", "--capture", "net.json", "train.py", "--plan"]) == 0
    rows = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("change", "zero_grad"))]
    assert rows[0].split()[-1] == "predicted"
    assert rows[1].endswith(")") and " to " in rows[1].rpartition("(")[2]  # 7.14 (6.6 to 7.7)


def test_a_capture_of_a_cpu_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 20))
    done = pyprof_try(tmp_path, TRAINING, "--capture", "net.json", "SCRIPT")
    assert (done.returncode, done.stdout) == (1, "")
    assert "net.json: expected GPU operations" in done.stderr


def test_the_plan_s_changes_are_tried_on_top_of_those_that_gained(capsys: Any) -> None:
    """TF32 after amp gains 0.1%, less than 1%; compile loses. Neither is kept: what follows stands on the others."""
    args = build_parser().parse_args(["--json", "--plan", "--repeat", "1", "--without", "zero_grad", "train.py"])
    runner = MadeUp()
    trial = _Trial(args, runner, [])  # type: ignore[arg-type]
    first = runner.run(())
    trial.original.add(first, 0)
    asked: list[tuple[str, ...]] = []
    predictor = SimpleNamespace(
        plan=lambda: (["amp", "tf32", "zero_grad", "channels_last", "optimizer", "compile"], ["Pad the vocabulary"]),
        step=lambda changes: asked.append(tuple(changes)),
    )
    rows = trial._by_plan(predictor, 0)  # type: ignore[arg-type]
    assert runner.ran == ["", "", "amp", "amp+tf32", "amp+optimizer", "amp+optimizer+compile"]
    assert [("+".join(row.changes), row.kept) for row in rows] == [
        ("amp", True),
        ("amp+tf32", False),
        ("amp+channels_last", False),  # not run: there are no convolutions
        ("amp+optimizer", True),
        ("amp+optimizer+compile", False),
    ]
    assert asked == [tuple(row.changes) for row in rows]  # the prediction is of the same changes together
    assert [row.difference for row in rows] == pytest.approx([-0.2, -0.201, None, -0.4, -0.35], abs=1e-6)
    assert trial.by_hand == ["Pad the vocabulary"]
    trial._answer(rows, 0)
    document = json.loads(capsys.readouterr().out)
    assert document["by_hand"] == ["Pad the vocabulary"]
    assert document["variants"][2]["why_none"].startswith("the modules that the script calls have no 2-d or 3-d")


def test_the_plan_names_each_change_once_and_what_no_change_does(monkeypatch: Any) -> None:
    """Two cards of fusion and one of cross-entropy are one change from outside: compile."""
    rules = [
        ("amp", "A"),
        ("fusion", "B"),
        ("alignment", "Pad"),
        ("fusion", "C"),
        ("cross_entropy", "D"),
        ("item", "I"),
    ]
    plan = SimpleNamespace(changes=[SimpleNamespace(edit=SimpleNamespace(rule=r, title=t)) for r, t in rules])
    monkeypatch.setattr("pyprof.prof.changes.search.make_plan", lambda _: plan)
    predictor = Predictor.__new__(Predictor)
    predictor._forecaster = None  # type: ignore[assignment]
    assert predictor.plan() == (["amp", "compile"], ["Pad", "I"])


def test_on_a_narrow_terminal_columns_are_left_out_and_none_is_cut() -> None:
    step = MeasuredStep(31.95, 31.9, 32.0, [31.95], 20, 5_850_000_000, [7.0424])
    amp = TriedVariant(
        changes=["amp", "channels_last"], does="", done=[], measured=step, why_none="", difference=-0.05,
        beyond_noise=True, loss_difference=0.0, predicted=PredictedStep(21.8, 18.6, 24.4),
    )  # fmt: skip
    document = TryDocument("train.py", 0, "NVIDIA H200", OPTIMIZER, 10, step, [amp], [])
    heads = {width: list(try_lines(document, width))[2:] for width in (80, 110)}
    for width, lines in heads.items():
        row = next(line for line in lines if line.startswith("amp+channels_last"))
        assert row.endswith("-5.0%     21.8 (18.6 to 24.4)") and len(row) <= width
    head = {width: next(line for line in lines if line.startswith("change")) for width, lines in heads.items()}
    assert "quartiles" in head[110] and "peak GB" in head[110]
    assert "quartiles" not in head[80] and "peak GB" in head[80]
