"""Changes in code that fit the program: its framework's settings, and its loop, training or inference."""

import ast
import inspect
import os
import shutil
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.prof.changes.code_change import code_change
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.framework_settings import FRAMEWORKS, SETTINGS, Program, frameworks_of, program_of
from pyprof.prof.changes.general_code import AT_MODEL, GENERAL, INFERENCE, TRAINING
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.source_line import module
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.source_path import Place
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import mm, run

V100 = "Tesla V100-SXM2-16GB"
LATER = 4e9  # a capture of a later time
LOOPS = GOLDEN / "frameworks"
AMP = 'Use mixed precision: run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16).'
COMPILE = "Compile the whole model. Call model = torch.compile(model) once, before the loop."
FP8 = "Run large linear layers in FP8: .... Compile the model, or casts and scales cost the host more than they gain."


def captured(file):
    table = load_table(str(file)).table
    return Run(table, annotate(table))


def program(of):
    """What is known of the program for a change about the whole run."""
    return program_of(of, np.arange(of.rows), -1)


@pytest.mark.parametrize(
    ("name", "frameworks"),
    [("trainer", ("trainer", "model")), ("lightning", ("lightning",)), ("accelerate", ("accelerate",))],
)
def test_a_capture_s_stacks_name_the_framework(name, frameworks):
    """The Trainer calls accelerate itself, whose settings it makes."""
    found = program(captured(LOOPS / f"{name}.json.gz"))
    assert (found.loop, found.frameworks, found.files) == (TRAINING, frameworks, (f"{name}_loop.py",))


CALLS = [  # the program, the change, and the only call of its kind in its file, rewritten
    ("trainer", "amp", AMP, "TrainingArguments", {"bf16": "True", "max_steps": "4", "fp16": "False"}),
    ("trainer", "amp", AMP.replace("bfloat16", "float16"), "TrainingArguments", {"fp16": "True", "max_steps": "4"}),
    ("trainer", "compile", COMPILE, "TrainingArguments", {"torch_compile": "True"}),
    ("lightning", "amp", AMP, "Trainer", {"precision": "'bf16-mixed'", "max_steps": "4"}),
    ("accelerate", "amp", AMP, "Accelerator", {"mixed_precision": "'bf16'", "cpu": "True"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "change", "call", "arguments"), CALLS)
def test_the_program_s_call_gets_the_argument(name, rule, change, call, arguments, tmp_path, monkeypatch):
    module.cache_clear()
    shutil.copy(LOOPS / f"{name}_loop.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    _, code = code_change(rule, change, "", "", LATER, program(captured(LOOPS / f"{name}.json.gz")))
    assert not code.general and code.place.startswith(f"{name}_loop.py:") and call in code.before
    found = {each.arg: ast.unparse(each.value) for each in ast.parse(code.after).body[0].value.keywords}
    assert found | arguments == found


UNSURE = [  # calls that are left alone, so that the general form is shown
    "args = TrainingArguments(folder, **options)",
    "args = TrainingArguments(folder, bf16=options.bf16)",
    "args = TrainingArguments(folder)\nothers = TrainingArguments(other)",
    "args = TrainingArguments(folder, bf16=True)",
    "args = make(folder)",
]


@pytest.mark.parametrize("source", UNSURE)
def test_a_call_that_is_not_plain_is_left_alone(source, tmp_path):
    module.cache_clear()
    file = tmp_path / "train.py"
    file.write_text(source, encoding="utf-8")
    _, code = code_change("amp", AMP, "", "", LATER, Program(frameworks=("trainer",), files=(str(file),)))
    assert code.general and code.after == "args = TrainingArguments(..., bf16=True)"


def test_a_value_that_the_framework_reads_is_its_setting_and_one_of_the_program_s_is_not():
    of_trainer = Program(frameworks=("trainer",), place=Place("train.py:9", "transformers/trainer.py:1957"))
    change = "Do not read values from the GPU within the step"
    assert "logging_nan_inf_filter=False" in code_change("item", change, "", "", LATER, of_trainer)[1].after
    own = of_trainer._replace(place=Place("net.py:4", ""))
    assert code_change("item", change, "", "", LATER, own)[1].before == "total += loss.item()"


def stacks(*traces):
    return run(*({"kShortName": "k", "aten": "aten::mm", "ns": 1000, "trace": trace, "phase": ""} for trace in traces))


def test_the_rows_of_a_change_say_whose_loop_runs_them():
    """A Trainer that generates with vLLM: what vLLM runs is vLLM's to set."""
    both = stacks(["train.py:1", "transformers/trainer.py:2"], ["train.py:1", "trl/trainer/grpo.py:3", "vllm/llm.py:4"],
                  ["train.py:1"])  # fmt: skip
    assert frameworks_of(both, np.array([0])) == ("trainer",)
    assert frameworks_of(both, np.array([1])) == ("vllm", "trainer")
    assert frameworks_of(both, np.array([2])) == ("vllm", "trainer")  # its own say nothing
    assert frameworks_of(stacks(["train.py:1", "accelerate/hooks.py:5"]), np.array([0])) == ()  # device_map, no loop
    assert frameworks_of(stacks(["train.py:1", "lightning/fabric/fabric.py:5"]), np.array([0])) == ()


def test_general_code_is_no_edit_of_a_library():
    """A line below the program's is the library's to change; how the program calls its model is not."""
    below = Program(INFERENCE, (), Place("train.py:9", "timm/models/vit.py:5"))
    assert code_change("item", "Do not read values", "", "", LATER, below) == ("", None)
    assert code_change("compile", COMPILE, "", "", LATER, below)[1].before == "out = model(x)"
    place = Place("", "vllm/v1/sample/sampler.py:7")
    assert code_change("item", "Do not read values", "", "", LATER, Program(INFERENCE, ("vllm",), place)) == ("", None)
    _, code = code_change("fp8", FP8, "", "", LATER, Program(INFERENCE, ("vllm",), place))
    assert code.after == 'llm = LLM(..., quantization="fp8")  # vllm serve --quantization fp8'


def test_the_loop_is_that_of_the_capture():
    rows = [{"kShortName": "k", "aten": "aten::mm", "ns": 1000, "phase": phase} for phase in ("forward", "backward")]
    assert program(run(*rows)).loop == TRAINING
    assert program(run(rows[0])).loop == INFERENCE


TRAINS = ("backward()", "GradScaler", "convert_to_float8_training", "criterion", "optimizer.step")
INFERS = ("inference_mode", "model.eval()", "quantize_(", ".to(torch.bfloat16)  # once")
# About the backward pass or parameters, which only training has
ALIKE = frozenset(
    "kept_activations parameter_loop sparse_grad unused_gradients optimizer cross_entropy repeats".split()
)


@pytest.mark.parametrize(("loop", "others"), [(TRAINING, INFERS), (INFERENCE, TRAINS)])
def test_no_code_is_of_the_other_loop(loop, others):
    for form in (*GENERAL, *SETTINGS):
        if form.fits(form.rule, form.words, loop) and form.rule not in ALIKE:
            assert not any(each in f"{form.before}\n{form.after}" for each in others), form


@pytest.mark.parametrize("rule", ["amp", "fp8", "item", "size_sync"])
def test_both_loops_have_code_of_their_own(rule):
    words = {"amp": AMP, "fp8": FP8, "item": "Do not read values"}.get(rule, "")
    training, inference = (code_change(rule, words, "", "", LATER, Program(loop))[1] for loop in (TRAINING, INFERENCE))
    assert training.after != inference.after


def test_settings_are_python_of_rules_and_frameworks_that_exist():
    assert {each.rule for each in SETTINGS} | AT_MODEL <= set(EDIT_RULES)
    assert {each.framework for each in SETTINGS} == {each.name for each in FRAMEWORKS}
    for each in SETTINGS:
        ast.parse(each.before), ast.parse(each.after)
        assert each.before != each.after, each


def arguments(framework, call):
    """The arguments that a framework's settings give to a call."""
    made = [node for each in SETTINGS if each.framework == framework for node in ast.walk(ast.parse(each.after))]
    calls = [node for node in made if isinstance(node, ast.Call) and ast.unparse(node.func) == call]
    assert calls
    return {keyword.arg for node in calls for keyword in node.keywords}


def test_the_frameworks_have_these_arguments():
    transformers, accelerate = pytest.importorskip("transformers"), pytest.importorskip("accelerate")
    assert arguments("trainer", "TrainingArguments") <= {each.name for each in fields(transformers.TrainingArguments)}
    assert arguments("accelerate", "Accelerator") <= set(inspect.signature(accelerate.Accelerator).parameters)


def test_lightning_has_these_arguments():
    lightning = pytest.importorskip("lightning")
    assert arguments("lightning", "Trainer") <= set(inspect.signature(lightning.Trainer).parameters)


SERVED = [
    ("round2/tracelens_sglang_decode", "sglang"), ("round3/b300_qwen3_moe_decode", "sglang"),
    ("round3/mi300x_sglang_split", "sglang"), ("round2/tracelens_vllm_decode", "vllm"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework"), SERVED)
def test_a_server_s_stacks_have_no_line_of_a_program(name, framework):
    folder = os.environ.get("PYPROF_DATA")
    if folder is None:
        pytest.skip("PYPROF_DATA is unset: it names the folder of captures that are not in the repository")
    served = captured(Path(folder) / f"{name}.json.gz")
    found = program(served)
    assert (found.frameworks, found.files) == ((framework,), ()) and found.loop != TRAINING
    assert {served.place(row).line for row in range(served.rows)} == {""}
    assert all(served.place(row).library for row in range(served.rows))


def test_mixed_precision_is_of_the_capture_s_loop():
    """On a V100, which has no bf16 in tensor cores, training scales its loss, and inference has none."""
    (edit,) = amp_of({"phase": "forward"}, {"phase": "backward", "dir": "bprop"})
    assert "run forward and loss under torch.autocast" in edit.change and "GradScaler" in edit.change
    (edit,) = amp_of({"phase": "forward"})
    assert edit.change == 'Use mixed precision: run the model under torch.autocast("cuda", dtype=torch.float16).'


def amp_of(*rows):
    """What is proposed for products of float32 operands."""
    of = run(*({**mm(1024, 1024, 1024, 500_000, "volta_sgemm_128x64_nn", "float32"), **row} for row in rows), gpu=V100)
    return list(EDIT_RULES["amp"](SimpleNamespace(run=of)))
