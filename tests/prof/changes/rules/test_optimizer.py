"""Adam by lists of tensors against one fused pass."""

import pytest

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules import RULES
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.prof.changes.rules import advice_rows
from tests.prof.changes.rules.advice_rows import changes, changes_of

N = 100_000_000  # parameters, fp32


def foreach(name, lists, ns, **more):
    return {
        "aten": f"aten::_foreach_{name}_", "sizes": [[[N]]] * lists + [[]], "dtypes": [["float32"]] * lists + [""],
        "kShortName": "multi_tensor_apply_kernel", "phase": "optimizer", "ns": ns, **more,
    }  # fmt: skip


def adam(addcdiv_ns=500_000):
    """lerp 12 bytes a parameter, addcdiv 16, addcmul 12."""
    return [foreach("lerp", 2, 400_000), foreach("addcmul", 3, 500_000), foreach("addcdiv", 3, addcdiv_ns)]


def test_adam_by_hand():
    # 28 × 1e8 bytes at 0.72 × 4.8e12/s: 810.2 µs, now 1400; and 2 kernels' 1.1 µs
    (change,) = changes(*adam())
    assert (change.rule, change.kernels) == ("optimizer", 3)
    assert change.gpu_ms == pytest.approx(1.4 - 0.8102, abs=0.0001)
    assert "fused=True" in change.change and "a fused one moves 28" in change.why


def test_clipping_of_gradients_is_no_part_of_the_step():
    # its stack of norms has unknown bytes, its mul_ moves 8 bytes a parameter in 300 µs: neither goes with fused=True
    clip = [{"aten": "aten::cat", "nodes": ["aten::stack", "aten::cat"], "kShortName": "cat", "phase": "optimizer",
             "ns": 3_000, "op": ["stack"]}, foreach("mul", 1, 300_000, op=["_foreach_mul_"])]  # fmt: skip
    steps = [{**row, "op": ["AdamW.step", row["aten"].removeprefix("aten::")]} for row in adam()]
    (change,) = changes(*clip, *steps)
    assert (change.kernels, change.gpu_ms) == (3, pytest.approx(1.4 - 0.8102, abs=0.0001))
    assert changes(*clip, *adam()) == []  # not told apart: a size is unknown


def test_optimizers_of_two_classes_are_judged_apart():
    """SGD on lists for tables of embeddings, which gains nothing, beside AdamW for the rest."""
    tables = foreach("add", 2, 900_000, op=["SGD.step", "_foreach_add_"])
    steps = [{**row, "op": ["AdamW.step", row["aten"].removeprefix("aten::")]} for row in adam()]
    (change,) = changes(tables, *steps)
    assert (change.kernels, change.gpu_ms) == (3, pytest.approx(1.4 - 0.8102, abs=0.0001))


def test_each_group_of_parameters_keeps_two_calls_in_a_fused_step():
    """Ten groups of three calls: of 30 calls 20 remain, the fused one of each group and one that counts its steps."""
    made = advice_rows.run(*(row for _ in range(10) for row in adam()))
    (finding,) = RULES["optimizer"](made)
    assert finding.calls == 10


def test_adam_of_half_precision_parameters():
    # 7 values of 2 bytes, 1e8 times, at 0.72 × 4.8e12/s: 405.1 µs; three kernels of 6, 6 and 8 bytes a parameter
    rows = [{**row, "dtypes": [["bfloat16"]] * (len(row["dtypes"]) - 1) + [""]} for row in adam()]
    (change,) = changes(*rows)
    assert change.gpu_ms == pytest.approx(1.4 - 0.4051, abs=0.0001)
    assert (
        "moves 20 bytes per parameter" in change.why
        and "a fused one moves 14" in change.why
        and "100 M param" in change.why
    )


def single(name, tensors, **more):
    return {"aten": f"aten::{name}_", "sizes": [[10_000]] * tensors + [[]], "dtypes": ["float32"] * tensors + [""],
            "kShortName": "vectorized_elementwise_kernel", "phase": "optimizer", "ns": 3_000, **more}  # fmt: skip


def test_single_ops_are_launches():
    # 300 kernels of 3 µs, 0.9 ms; 28 bytes for each of 1e6 parameters at 3.456e12/s remain, 8.1 µs
    rows = []
    for i in range(100):
        for j, (name, tensors) in enumerate((("lerp", 2), ("addcmul", 3), ("addcdiv", 3))):
            rows.append(single(name, tensors, start=(3 * i + j) * 20_000))
    (change,) = changes(*rows, rule="optimizer")
    assert change.kernels == 300 and "single ops" in change.why
    assert change.gpu_ms == pytest.approx(0.9 - 0.0081, abs=0.0001)


def test_momentum_by_single_ops():
    # 32 bytes a parameter, 20 in one pass: 3 × 1e8 parameters. 9.6e9 bytes take 2400 µs, 2e9 × 3 / 3.456e12 s = 1736
    big = {"sizes": [[N]] * 2 + [[]], "ns": 300_000, "kShortName": "vectorized_elementwise_kernel"}
    rows = [single(name, 2, **big) for _ in range(3) for name in ("mul", "add", "add")]
    for row in rows[::3]:
        row.update(sizes=[[N], []], dtypes=["float32", ""], ns=200_000)
    (change,) = changes(*rows, rule="optimizer")
    assert "SGD with momentum" in change.why and change.gpu_ms == pytest.approx(2.4 - 1.736, abs=0.01)


SAYS_NOTHING = {
    "fused": [{**foreach("x", 4, 1_400_000), "aten": "aten::_fused_adamw_"}],
    "fused for other parameters": [*adam(), {**foreach("x", 4, 1_400_000), "aten": "aten::_fused_adamw_"}],
    "another optimizer": [foreach("add", 2, 500_000), foreach("mul", 1, 500_000)],
    "as fast as fused": adam(addcdiv_ns=1000),
    "sizes unknown": [{**row, "sizes": None, "dtypes": None} for row in adam()],
    "kernels without a time": [single("add", 2, ns=0) for _ in range(100)],
    "another phase": [{**row, "phase": "backward"} for row in adam()],
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_says_nothing(why):
    assert changes(*SAYS_NOTHING[why], rule="optimizer") == []


def series(count, *ops, step="", **more):
    """Single ops for each of ``count`` parameters, as torch/optim of 2.13 runs them on a list of one."""
    named = {"op": [f"{step}.step", "x"]} if step else {}
    steps = [single(name, tensors, **named, **more) for _ in range(count) for name, tensors in ops]
    return [{**row, "start": i * 20_000} for i, row in enumerate(steps)]


ADAM = (("lerp", 2), ("mul", 1), ("addcmul", 3), ("sqrt", 1), ("div", 1), ("add", 1), ("addcdiv", 3))
OF_1_13 = (("mul", 1), ("add", 2), ("mul", 1), ("addcmul", 3), ("sqrt", 1), ("div", 1), ("add", 1), ("addcdiv", 3))
ADAGRAD = (("addcmul", 3), ("sqrt", 1), ("add", 1), ("addcdiv", 3))
RMSPROP = (("mul", 1), ("addcmul", 3), ("sqrt", 1), ("add", 1), ("addcdiv", 3))
NADAM = (*ADAM, ("addcdiv", 3))
ADAMAX = (("lerp", 2), ("mul", 1), ("abs", 1), ("maximum", 2), ("addcdiv", 3))
OPS = {"Adam": ADAM, "AdamW": OF_1_13, "Adagrad": ADAGRAD, "RMSprop": RMSPROP, "NAdam": NADAM, "Adamax": ADAMAX}


@pytest.mark.parametrize("step", OPS)
@pytest.mark.parametrize("named", [True, False])
def test_only_adam_is_taken_for_adam(step, named):
    found = changes(*series(50, *OPS[step], step=step if named else ""), rule="optimizer")
    assert [change.why.split()[0] for change in found] == (["Adam"] if step in ("Adam", "AdamW") else [])


def test_an_optimizer_of_another_name_is_not_taken_for_adam_or_sgd():
    assert changes(*series(50, *ADAM, step="Lamb"), rule="optimizer") == []
    assert changes(*series(50, ("mul", 1), ("add", 2), step="Lion"), rule="optimizer") == []


def test_adagrads_capture_gets_no_fused_optimizer(data):
    """param's DLRM: 16 parameters, addcmul_, sqrt, add_, addcdiv_ each, in Adagrad.step."""
    table = load_table(data / "round2" / "param_dlrm_adagrad.json.gz").table
    assert [change.rule for change in changes_of(Run(table, annotate(table)))].count("optimizer") == 0
