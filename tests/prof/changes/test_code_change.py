"""The change in code: the program's own statement where it can be rewritten, and never one that is not it."""

import ast
import os
from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.prof.changes.code_change import code_change
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.framework_settings import Program
from pyprof.prof.changes.general_code import GENERAL, INFERENCE, TRAINING
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.host import graphs
from pyprof.prof.changes.rules.kernels import whole_model
from pyprof.prof.changes.rules.products import float8
from pyprof.prof.changes.search import make_plan
from pyprof.prof.changes.source_line import module, statement
from pyprof.prof.planning.cli import load_base
from tests.paths import GOLDEN

SOURCE = """import torch
from torch.utils.data import DataLoader

def train(model, data, device):
    loader = DataLoader(data, batch_size=8, shuffle=True)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,
    )
    for x, y in loader:
        x = x.to(device)
        y = y.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=False)
        loss = model(x, y)
        total += loss.item()
        losses.append(loss.item())
        print(loss.item())
        if loss.item() > 3:
            break
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
        out = x @ y
        hidden = self.layers[0](x)
"""
LATER = 4e9  # a capture of a later time


@pytest.fixture
def file(tmp_path):
    module.cache_clear()
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def place(file, text):
    """The file and line of a statement."""
    (line,) = (number for number, each in enumerate(SOURCE.split("\n"), 1) if each.strip().startswith(text))
    return f"{file}:{line}"


REWRITTEN = [
    ("item", "total += loss.item()", "item", "total += loss.item()", "total += loss.detach()"),
    ("item", "losses.append", "item", "losses.append(loss.item())", "losses.append(loss.detach())"),
    ("zero_grad", "optimizer.zero_grad", "AdamW.zero_grad", "optimizer.zero_grad(set_to_none=False)",
     "optimizer.zero_grad()"),
    ("pageable_copy", "x = x.to(", "to", "x = x.to(device)", "x = x.to(device, non_blocking=True)"),
    ("allocator", "torch.cuda.empty_cache", "", "torch.cuda.empty_cache()", ""),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "begin", "op", "before", "after"), REWRITTEN)
def test_a_statement_is_rewritten(file, rule, begin, op, before, after):
    shown, code = code_change(rule, "", place(file, begin), op, LATER)
    assert (shown, code.before, code.after, code.general) == (before, before, after, False)
    assert code.place == place(file, begin)


@pytest.mark.parametrize("begin", ["print(loss.item())", "y = y.to("])
def test_what_is_not_plain_is_not_rewritten(file, begin):
    """A printed value is read in any case, and this copy is asynchronous already."""
    rule, op = ("item", "item") if "item" in begin else ("pageable_copy", "to")
    words = "Do not read values" if rule == "item" else ""
    _, code = code_change(rule, words, place(file, begin), op, LATER)
    assert code.general and code.place == ""


def test_the_constructor_in_the_file_gets_the_argument(file):
    _, code = code_change("optimizer", "", place(file, "optimizer.step()"), "AdamW.step", LATER)
    assert code.place == f"{file}:6" and not code.general
    assert (
        code.after.splitlines()
        == [
            "optimizer = torch.optim.AdamW(",
            "    model.parameters(),",
            "    lr=1e-3, fused=True",
            ")",
        ]
        or "fused=True" in code.after
    )
    assert ast.unparse(ast.parse(code.after)) == (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)"
    )
    _, code = code_change("data_loader", "", place(file, "x = x.to("), "to", LATER)
    assert code.after == (
        "loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=8, persistent_workers=True, pin_memory=True)"
    )


def test_a_statement_that_cannot_have_called_the_op_is_not_shown(file):
    """The file may have changed, or be another one of the same name."""
    assert statement(place(file, "loss.backward()"), "conv2d", LATER) is None
    assert statement(place(file, "loss = model("), "linear", LATER).text == "loss = model(x, y)"  # a module
    assert statement(place(file, "hidden = "), "linear", LATER) is not None
    assert statement(place(file, "out = x @ y"), "matmul", LATER) is not None
    assert statement(place(file, "out = x @ y"), "softmax", LATER) is None
    assert statement(place(file, "if loss.item()"), "item", LATER) is None  # it has statements of its own


def test_a_file_that_is_newer_than_the_capture_is_not_shown(file):
    os.utime(file, (2_000, 2_000))
    assert statement(place(file, "loss = model("), "linear", 2_000) is not None
    os.utime(file, (3_000, 3_000))
    module.cache_clear()
    assert statement(place(file, "loss = model("), "linear", 2_000) is None


@pytest.mark.parametrize("name", ["missing.py:3", "folder.py:1", "secret.txt:1", "broken.py:1", "train.py:x", "", ":3"])
def test_anything_else_is_no_source(tmp_path, file, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "secret.txt").write_text("call(x)")
    (tmp_path / "broken.py").write_bytes(b"call(\xff")
    assert statement(name, "", LATER) is None


@pytest.mark.parametrize(
    "source",
    [
        "if x:\n    pass\nelse: x = x.to(device)\n",
        "def f():\n    x = pad(\n  x).to(device)\n",
        'def f():\n    x = text("""\nname""").to(device)\n',
    ],
)
def test_lines_that_are_no_statement_by_themselves_are_not_shown(tmp_path, source):
    module.cache_clear()
    file = tmp_path / "one.py"
    file.write_text(source, encoding="utf-8")
    line = next(number for number, each in enumerate(source.split("\n"), 1) if ".to(device)" in each)
    shown, change = code_change("pageable_copy", "Copy from pinned memory", f"{file}:{line}", "to", LATER)
    assert shown == ""
    assert change.general


def made_in_order(*changes, loop=TRAINING):
    """A program after these changes, (rule, change in words), one after the other as the plan writes them."""
    program = "out = model(x)"
    for rule, change in changes:
        _, code = code_change(rule, change, "", "", LATER, Program(loop))
        if code is not None:
            assert code.before in program
            program = program.replace(code.before, code.after) if code.before else f"{code.after}\n{program}"
    return program.splitlines()


@pytest.mark.parametrize(
    ("order", "program"),
    [
        (
            ["cuda_graph", "compile"],
            ['model = torch.compile(model, mode="reduce-overhead")  # once', "out = model(x)"],
        ),
        (
            ["compile", "cuda_graph"],
            ['model = torch.compile(model, mode="reduce-overhead")  # once, before the loop', "out = model(x)"],
        ),
        (["cuda_graph"], ["model = torch.cuda.make_graphed_callables(model, (x,))  # once", "out = model(x)"]),
        (
            ["fp8", "compile", "cuda_graph"],
            [
                "from torchao.float8 import convert_to_float8_training",
                "",
                "convert_to_float8_training(model)  # once",
                'model = torch.compile(model, mode="reduce-overhead")',
                "out = model(x)",
            ],
        ),
        (
            ["compile", "fp8"],
            [
                "from torchao.float8 import convert_to_float8_training",
                "",
                "convert_to_float8_training(model)  # once, before torch.compile",
                "model = torch.compile(model)  # once, before the loop",
                "out = model(x)",
            ],
        ),
    ],
)
def test_changes_of_how_the_model_is_called_can_be_made_in_the_plan_s_order(order, program):
    words = {"cuda_graph": graphs._change, "compile": whole_model._change, "fp8": float8._compiling}
    changes = []
    for place, rule in enumerate(order):
        made = [SimpleNamespace(rule=before) for before in order[:place]]
        run = SimpleNamespace(family=np.array(["gemm"]))
        compiled = not {"compile", "fp8"}.isdisjoint(order[:place])
        scenario = SimpleNamespace(edits=made, run=run, is_compiled=compiled)
        changes.append((rule, ("Run large linear layers in FP8: " if rule == "fp8" else "") + words[rule](scenario)))
    loop = INFERENCE if order[0] == "cuda_graph" else TRAINING  # a training step's graph holds more than the model
    assert made_in_order(*changes, loop=loop) == program


def test_a_graph_of_a_training_step_holds_the_optimizer_until_the_model_is_compiled():
    """The form was run on an H200: 4.54 to 0.66 ms, with equal losses."""
    words = "Launch the step as a CUDA graph: torch.cuda.make_graphed_callables ..."
    _, graphed = code_change("cuda_graph", words, "", "", LATER, Program(TRAINING))
    whole = ast.parse(graphed.after)
    step = next(node for node in whole.body if isinstance(node, ast.FunctionDef))
    assert "optimizer.step()" in ast.unparse(step)
    assert graphed.after.endswith("graph.replay()")
    words = "Compile the whole model. In place of its graph ..."
    _, compiled = code_change("compile", words, "", "", LATER, Program(TRAINING))
    assert graphed.after.endswith(compiled.before)
    assert compiled.after.endswith(graphed.before)


def test_a_plan_compiles_the_model_once():
    """On an H200: torch.compile, then a CUDA graph, then FP8."""
    _, base, _ = load_base(str(GOLDEN / "h200_llama_training_eager.json.gz"), None, lambda _: None)
    found = [(each.edit.rule, each.edit.change) for each in make_plan(Forecaster(base)).changes]
    assert [rule for rule, _ in found] == ["compile", "cuda_graph", "fp8"]
    assert made_in_order(*found)[2:] == [
        "convert_to_float8_training(model)  # once, before torch.compile",
        'model = torch.compile(model, mode="reduce-overhead")  # once, before the loop',
        "out = model(x)",
    ]


def test_general_forms_are_python_of_rules_that_exist():
    assert {form.rule for form in GENERAL} <= set(EDIT_RULES)
    for form in GENERAL:
        ast.parse(form.before), ast.parse(form.after)
        assert form.before != form.after, form


def test_the_words_of_a_change_choose_its_general_form():
    half = 'Use mixed precision: run forward and loss under torch.autocast("cuda", dtype=torch.float16) and a scaler.'
    assert "scaler.scale(loss)" in code_change("amp", half, "", "", LATER)[1].after
    assert code_change("fusion", "Something else", "", "", LATER) == ("", None)
    assert code_change("no_such_rule", "Do it", "", "", LATER) == ("", None)
