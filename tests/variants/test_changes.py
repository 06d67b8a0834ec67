"""What the changes do around a model's calls, and how steps and losses are found. One process, on the CPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from pyprof.capture.patch import Patches  # noqa: E402
from pyprof.variants import default_changes  # noqa: E402
from pyprof.variants.changes import why_not  # noqa: E402
from pyprof.variants.compare_runs import Variant, change_beside, loss_difference  # noqa: E402
from pyprof.variants.graphed import Graphed  # noqa: E402
from pyprof.variants.loss_record import watch_backward  # noqa: E402
from pyprof.variants.model_changes import ModelChanges  # noqa: E402
from pyprof.variants.outermost import Outermost  # noqa: E402
from pyprof.variants.run_record import (  # noqa: E402
    MARK,
    MODULE,
    OPTIMIZER,
    Facts,
    RunRecord,
    Settings,
    read_record,
    write,
)
from pyprof.variants.run_variants import Ran  # noqa: E402
from pyprof.variants.step_watch import StepWatch  # noqa: E402


class Installed:
    """What variant_script.py replaces, for some changes."""

    def __init__(self, changes: list[str]) -> None:
        self.patches, self.facts, self.done, self.ends = Patches(), Facts(), list[str](), list[int]()
        self.watch = StepWatch(0, 100, lambda: self.ends.append(1))
        settings = Settings("s.py", [], False, changes, 0, 100, 0.0, "", workers=3)
        default_changes.change_optimizers(self.patches, settings, self.watch, self.facts, self.done)
        default_changes.change_loaders(self.patches, settings, self.facts, self.done)
        self.models = ModelChanges(changes, self.watch, self.facts, self.done)
        self.outermost = Outermost(self.patches, self.models.around)
        watch_backward(self.patches, self.watch, self.models.leave_autocast)


@pytest.fixture
def installed() -> Iterator[Any]:
    made: list[Installed] = []

    def install(*changes: str) -> Installed:
        made.append(Installed(list(changes)))
        return made[-1]

    before = torch.nn.Module.__call__, torch.autograd.backward, torch.utils.data.DataLoader.__init__
    yield install
    for each in made:
        each.models.leave_autocast()
        each.patches.undo()
    assert before == (torch.nn.Module.__call__, torch.autograd.backward, torch.utils.data.DataLoader.__init__)


def test_autocast_reaches_from_the_model_s_call_to_backward(installed: Any) -> None:
    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        by_hand = torch.nn.functional.mse_loss(model(x), x)
    installed("amp")
    scores = model(x)
    assert (scores.dtype, torch.is_autocast_enabled("cpu")) == (torch.bfloat16, True)
    loss = torch.nn.functional.mse_loss(scores, x)  # autocast computes it in fp32
    assert loss.dtype == torch.float32
    assert loss.item() == by_hand.item()
    loss.backward()
    assert not torch.is_autocast_enabled("cpu")
    with torch.no_grad():
        assert model(x).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")  # no backward() follows: the region ends with the module


def test_the_script_s_own_autocast_is_left_alone(installed: Any) -> None:
    each = installed("amp")
    model = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(2, 4)).sum()
    assert not torch.is_autocast_enabled("cpu")
    assert why_not(("amp",), each.facts) == "the script uses autocast already"


def test_losses_submodules_and_recomputed_blocks_are_no_outermost_modules(installed: Any) -> None:
    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=False)

    each = installed()
    loss = torch.nn.MSELoss()(Checkpointed()(torch.ones(2, 4)), torch.zeros(2, 4))
    loss.backward()
    assert each.facts.models == ["Checkpointed"]


def test_a_model_stays_as_it_is_for_copies(installed: Any) -> None:
    installed("amp")
    model = torch.nn.Linear(4, 4)
    model(torch.ones(2, 4)).sum().backward()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
        twin.bias.zero_()
        assert twin(torch.ones(2, 4)).abs().sum() == 0
    assert vars(twin).keys() == vars(torch.nn.Linear(4, 4)).keys()


def test_channels_last_changes_weights_and_inputs(installed: Any) -> None:
    each = installed("channels_last")
    seen: list[bool] = []

    class Model(torch.nn.Sequential):
        def forward(self, x: Any) -> Any:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return super().forward(x)

    model = Model(torch.nn.Conv2d(3, 8, 3))
    model(torch.ones(2, 3, 8, 8))
    assert seen == [True]
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert each.done == ["Model: channels_last"]


def test_optimizers_and_zero_grad(installed: Any) -> None:
    each = installed("optimizer", "zero_grad")
    weight = torch.nn.Parameter(torch.ones(3))
    assert torch.optim.AdamW([weight], foreach=False).defaults["fused"] is True
    sgd = torch.optim.SGD([weight], 0.1)
    weight.grad = torch.ones(3)
    sgd.zero_grad(set_to_none=False)
    assert weight.grad is None
    assert "AdamW(fused=True)" in each.done
    assert each.facts.zero_fills == 1


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_loaders(installed: Any) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    each = installed("workers")
    loader = torch.utils.data.DataLoader(list(range(4)), 2)
    assert (loader.num_workers, loader.persistent_workers, loader.batch_size) == (3, True, 2)
    assert torch.utils.data.DataLoader(Stream()).num_workers == 1  # three would yield each item three times
    assert torch.utils.data.DataLoader([1], num_workers=2).num_workers == 2
    assert (each.facts.loaders, each.facts.loaders_without_workers) == (3, 2)


def test_a_lazy_model_is_changed_once_it_has_its_weights(installed: Any) -> None:
    each = installed("channels_last")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
    model(torch.ones(1, 3, 4, 4))
    assert each.done == []
    model(torch.ones(1, 3, 4, 4))
    assert each.done == ["Sequential: channels_last"]


def test_an_argument_that_a_graph_cannot_hold() -> None:
    graphed = Graphed(torch.nn.Linear(2, 2), torch.nn.Module.__call__)
    with pytest.raises(TypeError, match="an argument of the module is a set, not a tensor"):
        graphed(torch.ones(1, 2), {1})


# Which modules are watched


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        return self.body(x)


class OwnCall(torch.nn.Linear):
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


def test_after_the_warm_up_only_the_outermost_modules_classes_are_watched(installed: Any) -> None:
    original = torch.nn.Module.__call__
    each = installed("amp")
    net, other, x = Net(), torch.nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        assert net(x).dtype == torch.bfloat16
        each.outermost.settle(True)
        assert torch.nn.Module.__call__ is original and "__call__" in vars(Net)
        assert (net(x).dtype, Net()(x).dtype) == (torch.bfloat16, torch.bfloat16)
        assert other(x).dtype == torch.float32  # its class was not an outermost module's
        each.outermost.settle(False)
        assert other(x).dtype == torch.bfloat16
        each.outermost.settle(True)
        assert (net(x).dtype, other(x).dtype) == (torch.bfloat16, torch.bfloat16)
    each.patches.undo()
    assert "__call__" not in vars(Net) and "__call__" not in vars(torch.nn.Linear)
    assert torch.nn.Module.__call__ is original


def test_a_class_with_a_call_of_its_own_is_watched_as_before(installed: Any) -> None:
    each = installed("amp")
    model, x = OwnCall(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        model(x)
        each.outermost.settle(True)
        assert model(x).dtype == torch.bfloat16


def test_the_warm_up_s_end_settles_and_another_kind_of_step_does_not() -> None:
    told: list[bool] = []
    watch = StepWatch(2, 3, lambda: None)
    watch.settle = told.append
    watch.ended(MODULE)
    watch.ended(MODULE)
    assert told == [False, True]
    watch.ended(OPTIMIZER)  # it was training after all
    assert told == [False, True, False]
    watch.ended(OPTIMIZER)
    assert told == [False, True, False, True]


# Steps and losses


def test_module_calls_are_steps_until_an_optimizer_steps() -> None:
    ends: list[int] = []
    watch = StepWatch(0, 3, lambda: ends.append(watch.count))
    for value in (1.0, 2.0):  # two micro-batches, and the optimizer's step
        watch.add_loss(torch.tensor(value))
        watch.ended(MODULE)
    watch.ended(OPTIMIZER)
    assert (watch.kind, watch.count) == (OPTIMIZER, 1)
    watch.ended(MODULE)  # counts no more
    watch.add_loss(torch.tensor(5.0))
    watch.ended(OPTIMIZER)
    assert (watch.losses(), ends) == ([3.0, 5.0], [])
    watch.ended(OPTIMIZER)
    assert ends == [3]


def test_training_waits_for_its_optimizer_and_inference_ends_by_itself() -> None:
    ends: list[str] = []
    inference = StepWatch(1, 2, lambda: ends.append("inference"))
    training = StepWatch(1, 2, lambda: ends.append("training"))
    training.trains = True
    for _ in range(5):
        inference.ended(MODULE)
        training.ended(MODULE)
    assert ends == ["inference"]
    assert len(training.step_ns()[0]) == 2


def test_marks_count_alone() -> None:
    watch = StepWatch(0, 50, lambda: None)
    for kind in (MODULE, OPTIMIZER, MARK, OPTIMIZER, MODULE, MARK):
        watch.ended(kind)
    assert (watch.kind, watch.count) == (MARK, 2)


def test_fewer_steps_than_the_warm_up_has() -> None:
    watch = StepWatch(10, 20, lambda: None)
    for _ in range(7):
        watch.ended(OPTIMIZER)
    times, passed_over = watch.step_ns()
    assert (len(times), passed_over) == (3, 4)  # of the 6 between 7 ends, the second half


def test_a_scaled_loss_is_recorded_as_it_was(installed: Any) -> None:
    each = installed()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    weight = torch.nn.Parameter(torch.tensor(3.0))
    scaler.scale(weight * 2).backward()
    each.watch.ended(OPTIMIZER)
    assert each.watch.losses() == [6.0]
    assert weight.grad.item() == 2048.0


# Comparing


def ran(*ms: float, code: int = 0, finished: bool = True) -> Ran:
    steps = [round(each * 1e6) for each in ms]
    return Ran(code, RunRecord(OPTIMIZER, steps, 0, finished, [], 0, Facts(), []), "ValueError: no")


def variant(*runs: Ran) -> Variant:
    made = Variant(("amp",))
    for run in runs:
        made.add(run, 0)
    return made


def test_a_difference_within_the_noise_of_the_runs_is_none() -> None:
    """Medians of 10 and 12 ms: 2 ms of noise. 9.5 ms is less than that below their mean of 11; 6 ms is more."""
    original = variant(ran(10, 10, 10), ran(12, 12, 12))
    assert change_beside(variant(ran(9.5, 9.5, 9.5)), original) == (pytest.approx(9.5 / 11 - 1), False)
    assert change_beside(variant(ran(6, 6, 6)), original) == (pytest.approx(6 / 11 - 1), True)


def test_less_than_a_hundredth_is_no_gain() -> None:
    assert change_beside(variant(ran(9.95, 9.95)), variant(ran(10, 10)))[1] is False
    assert change_beside(variant(ran(9.8, 9.8)), variant(ran(10, 10)))[1] is True


def test_a_run_whose_loss_is_no_number_is_a_run(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    write(str(file), RunRecord(OPTIMIZER, [10], 0, True, [2.0, math.nan, math.inf], 0, Facts(), []))
    diverged = variant(Ran(0, read_record(file), ""))
    assert diverged.failed == ""
    assert diverged.losses[0] == 2.0 and all(map(math.isnan, diverged.losses[1:]))
    assert loss_difference(diverged.losses, [2.0, 1.0, 1.0]) == math.inf
    assert loss_difference([2.0, math.nan], [2.0, math.nan]) == 0.0


def test_a_run_that_ends_with_another_code_has_failed() -> None:
    assert variant(ran(1, 1, code=1, finished=False)).failed == "ValueError: no"
    assert variant(ran(1, 1, code=3, finished=True)).failed == ""
