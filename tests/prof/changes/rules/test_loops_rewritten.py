"""Loops over masks as one sort, and over time as one recurrent layer; tensors that grow by concatenation."""

import json

import pytest

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.host.growing_tensors import _grown, _joined, tensors_grow
from pyprof.prof.changes.rules.kernels.optimizer import CHUNKS
from pyprof.prof.changes.rules.repeats import mask_loops
from pyprof.prof.changes.rules.repeats.mask_loops import SORT_LAUNCHES
from pyprof.prof.changes.rules.repeats.merged_rows import GROUPED, at_once_ns
from tests.parse.kineto.kineto_file import MAIN, call, kernel, op, x
from tests.prof.changes.effect.test_scenario import base, of_rows
from tests.prof.changes.rules.advice_rows import mm, run

TOKENS, WIDTH = 1000, 64


def marker(called, line, at, took):
    """What pyprof's markers say of a call on a line of net.py."""
    said = {"v": 1, "mod": "torch", "op": called, "args": [], "trace": [f"net.py:{line}"]}
    return x("user_annotation", json.dumps(said, separators=(",", ":")), at - 1, took, MAIN)


class Program:
    """Ops one after the other, µs: each takes the host 40, its kernel 10, and the host waits for copies to it."""

    def __init__(self):
        self.events, self.number = [], 0

    def op(self, name, *dims, copied=False, kernels=1, sequence=None, called="", line=0):
        """``called``: what the user called, on a line of net.py, as pyprof's markers say it."""
        at = 40 * (self.number + 1) if not self.events else self.events[-1]["ts"] + 40
        numbered = {} if sequence is None else {"Sequence_number": sequence}
        listed = [list(each) for each in dims]
        self.events.append(
            op(f"aten::{name}", at, 38, Input_Dims=listed, Input_type=["float"] * len(listed), **numbered)
        )
        if called:
            self.events.append(marker(called, line, at, 40))
        for place in range(kernels):
            self.number += 1
            launch = at + 2 + 12 * place
            self.events += [call(launch, self.number), kernel(launch + 6, 10, self.number, name=f"void {name}_kernel")]
        if copied:
            self.number += 1
            copy = kernel(at + 30, 2, self.number, name="Memcpy DtoH (Device -> Pageable)", bytes=8)
            copy["cat"] = "gpu_memcpy"
            launch = x("cuda_runtime", "cudaMemcpyAsync", at + 15, 20, MAIN, correlation=self.number)
            self.events += [launch, copy]
        self.events.sort(key=lambda event: event["ts"] if event["cat"] == "cpu_op" else -1)
        return self

    def experts(self, count, sizes=None):
        for number in range(count):
            chosen = 100 + number
            self.op("eq", (TOKENS if sizes is None else sizes[number],), ())
            self.op("nonzero", (TOKENS if sizes is None else sizes[number],), copied=True)
            self.op("index", (TOKENS, WIDTH), ())
            self.op("mm", (chosen, WIDTH), (WIDTH, WIDTH))
            self.op("index_add_", (TOKENS, WIDTH), (), (chosen, WIDTH))
        return self

    def scenario(self, folder):
        return captured(base(folder, *self.events))


def proposed(rule, scenario):
    (only,) = EDIT_RULES[rule](scenario)
    return only


def test_a_loop_over_masks_runs_each_op_once(tmp_path):
    """Of 8 iterations of six operations, a sort and four ops remain; nothing waits any more.

    Without a known GPU, an op over all iterations is expected to take as long as two of them: 20 µs. The sort takes
    40, as long as the masks' kernels and copies at most: 8 × 12.
    """
    scenario = Program().experts(8).scenario(tmp_path)
    edit = proposed("mask_loop", scenario)
    after = apply(edit, scenario)
    assert sorted(after.run.aten.tolist()) == ["eq", "index", "index_add_", "mm", "nonzero"]
    took = dict(zip(after.run.aten.tolist(), after.run.dur.tolist(), strict=True))
    assert took == {"eq": 20_000, "index": 20_000, "mm": 20_000, "index_add_": 20_000, "nonzero": 40_000}
    assert len(edit.released) == 8 and edit.added.sum() == SORT_LAUNCHES
    assert "of 8 iterations" in edit.why
    assert isinstance(proposed("size_sync", after), Abstained)


def test_the_sort_is_launched_where_the_masks_were_asked(tmp_path):
    """An op that runs once on the masks' line begins the loop, and stays as it is."""
    program = Program().op("neg", (TOKENS,), called="__neg__", line=29)
    for number in range(6):
        program.op("eq", (TOKENS,), (), called="__eq__", line=29)
        program.op("nonzero", (TOKENS,), copied=True, called="__getitem__", line=30)
        program.op("index_add_", (TOKENS, WIDTH), (), (100 + number, WIDTH), called="index_add_", line=31)
    scenario = program.scenario(tmp_path)
    edit = proposed("mask_loop", scenario)
    assert "neg" not in scenario.run.aten[edit.rows]
    assert scenario.run.aten[edit.rows[edit.added > 0]].tolist() == ["nonzero"]
    assert edit.added.sum() == SORT_LAUNCHES


def test_what_stands_before_and_after_the_loop_is_left_alone(tmp_path):
    program = Program().op("topk", (TOKENS, WIDTH)).experts(6).op("tanh", (TOKENS, WIDTH))
    scenario = program.scenario(tmp_path)
    edit = proposed("mask_loop", scenario)
    assert set(scenario.run.aten.tolist()) - set(scenario.run.aten[edit.rows].tolist()) == {"topk", "tanh"}


def test_masks_that_shrink_are_left_alone(tmp_path):
    """As in suppression of boxes, where each iteration goes on with what the last one has left over."""
    scenario = Program().experts(6, sizes=[1000, 800, 500, 300, 200, 90]).scenario(tmp_path)
    assert isinstance(proposed("mask_loop", scenario), Abstained)


def test_a_mask_that_is_copied_to_be_asked_is_not_what_an_iteration_computes(tmp_path):
    """torch.where(mask[expert]) copies a mask that does not lie side by side: 2 × 1,000 values, as the tensor of two
    weights per token has, of which each iteration takes its own. That made the loop look like one that feeds itself."""
    program = Program()
    for number in range(6):
        program.op("copy_", (2, TOKENS), (2, TOKENS), called="where", line=30)
        program.op("nonzero", (2, TOKENS), copied=True, called="where", line=30)
        program.op("index", (TOKENS, WIDTH), (), called="__getitem__", line=31)
        program.op("mm", (100 + number, WIDTH), (WIDTH, WIDTH), called="linear", line=32)
        program.op("index", (TOKENS, 2), (), called="__getitem__", line=33)
        program.op("index_add_", (TOKENS, WIDTH), (), (100 + number, WIDTH), called="index_add_", line=34)
    assert "of 6 iterations" in proposed("mask_loop", program.scenario(tmp_path)).why


PLACES = 2000


def pictures(boxes, *more):
    """Losses picture by picture, of so many boxes each: which box is near each place, and errors where one is near.

    A picture takes elements from ``which``, 2,000 values, and from 2,000 × 4 values of the network for it. Sums of
    2,000 × 1 and 1 × n values are as many as ``which`` by their largest operand, and 2,000 × n values are as many as
    the network's for pictures of four boxes. ``more``: what each picture computes in the end.
    """
    program = Program()
    for count in boxes:
        program.op("add", (PLACES, 1), (1, count), called="add", line=20)
        program.op("div", (PLACES, count), (PLACES, count), called="div", line=21)
        program.op("max", (PLACES, count), (), (), called="max", line=22)
        program.op("ge", (PLACES,), (), called="ge", line=23)
        program.op("copy_", (PLACES,), (PLACES,), called="sum", line=24)
        program.op("sum", (PLACES,), (), called="sum", line=24)
        program.op("nonzero", (PLACES,), copied=True, called="__getitem__", line=25)
        program.op("index", (PLACES,), (), called="__getitem__", line=25)
        program.op("index", (PLACES, 4), (), called="__getitem__", line=25)
        program.op("smooth_l1_loss", (90 + count, 4), (90 + count, 4), called="smooth_l1_loss", line=26)
        for each in more:
            program.op(*each, called="add", line=27)
    return program


def test_what_an_iteration_makes_and_takes_itself_is_not_handed_on(tmp_path):
    """As in a detector's losses (32.5 of 113 ms measured): ``which[inside]`` was taken for another picture's."""
    scenario = pictures([3, 4, 5, 6, 7, 8]).scenario(tmp_path)
    edit = proposed("mask_loop", scenario)
    assert edit.why.startswith("1 loop of 6 iterations")
    assert edit.change.startswith("Replace the loop over masks: take all iterations at once")
    after = apply(edit, scenario)
    assert after.run.aten.tolist().count("smooth_l1_loss") == 1 and len(edit.released) == 6


@pytest.mark.parametrize("handed", [
    [("add", (PLACES,), (PLACES,))], [("add", (PLACES, 4), (PLACES, 4))], [("add", (PLACES, 1), (1, 4))],
], ids=["as many as which", "as many as the network's", "as many by broadcasting"])  # fmt: skip
def test_what_each_iteration_may_take_from_the_one_before_keeps_the_loop(handed, tmp_path):
    assert isinstance(proposed("mask_loop", pictures([3, 4, 5, 6, 7, 8], *handed).scenario(tmp_path)), Abstained)


def test_a_tensor_that_shrinks_from_iteration_to_iteration_may_be_handed_on(tmp_path):
    """Each makes as many as the next takes elements from, though never the same number."""
    program = Program()
    for size in (900, 800, 700, 600, 500, 400, 300):
        program.op("ge", (PLACES,), (), called="ge", line=20)
        program.op("nonzero", (PLACES,), copied=True, called="__getitem__", line=21)
        program.op("index", (size, 4), (), called="__getitem__", line=21)
        program.op("tanh", (size - 100, 4), called="tanh", line=22)
    assert isinstance(proposed("mask_loop", program.scenario(tmp_path)), Abstained)


def test_all_pictures_of_as_many_boxes_as_a_box_has_values_may_need_each_other(tmp_path):
    """Nothing tells 2,000 × 4 errors of the picture before from what the network says: then the rule is silent."""
    assert isinstance(proposed("mask_loop", pictures([4] * 6).scenario(tmp_path)), Abstained)


def test_a_mask_that_one_line_reads_and_writes_by_is_asked_twice_in_each_iteration(tmp_path):
    """y[mask] = x[mask] @ w: both ask for the mask's elements on one line, and only every other time a mask is made
    between two of them (as in a relational graph network of ten kinds of edges, whose loop was not found)."""
    program = Program()
    for number in range(6):
        program.op("eq", (TOKENS,), (), called="__eq__", line=29)
        program.op("nonzero", (TOKENS,), copied=True, called="__getitem__", line=30)
        program.op("index", (TOKENS, WIDTH), (), called="__getitem__", line=30)
        program.op("mm", (100 + number, WIDTH), (WIDTH, WIDTH), called="matmul", line=30)
        program.op("nonzero", (TOKENS,), copied=True, called="__setitem__", line=30)
        program.op("_index_put_impl_", (TOKENS, WIDTH), (), (100 + number, WIDTH), called="__setitem__", line=30)
    scenario = program.scenario(tmp_path)
    edit = proposed("mask_loop", scenario)
    assert edit.why.startswith("1 loop of 6 iterations")
    after = apply(edit, scenario)
    assert sorted(after.run.aten.tolist()) == ["_index_put_impl_", "eq", "index", "mm", "nonzero"]
    assert len(edit.released) == 12


def moments(count, size=lambda number: 64, product="mm"):
    """A small network on each of so many moments: a product and 31 other ops, on the same lines."""
    program = Program()
    for number in range(count):
        program.op(product, (8, size(number)), (size(number), 64))
        for _ in range(31):
            program.op("tanh", (8, size(number)))
    return program


def test_what_repeats_within_a_step_is_a_graph_each_time(tmp_path):
    """Of 5 moments of 32 launches without gradients, the first launch of each remains."""
    scenario = moments(5).scenario(tmp_path)
    edit = proposed("part_graph", scenario)
    assert "5 times per capture the host launches the same 32 kernels" in edit.why
    assert len(edit.rows) == 5 * 31 and edit.graph
    assert set(range(0, 160, 32)).isdisjoint(edit.rows.tolist())


@pytest.mark.parametrize("program", [
    moments(3), moments(5, size=lambda number: 64 + number), moments(5, product="add"),
], ids=["three times", "sizes that grow", "a loop over parameters, without products"])  # fmt: skip
def test_what_does_not_repeat_is_no_part(program, tmp_path):
    assert proposed("part_graph", program.scenario(tmp_path)).why.startswith("no 30 launches are repeated 4 times")


def test_three_masks_are_no_loop(tmp_path):
    only = proposed("mask_loop", Program().experts(3).scenario(tmp_path))
    assert only.why.startswith("no line asks 4 times or more within a step")


def test_other_ops_between_two_calls_end_a_loop(tmp_path):
    """Two layers of four experts each, with attention between them: two loops of one place."""
    program = Program().experts(4).op("softmax", (TOKENS, WIDTH)).op("bmm", (4, 8, 8), (4, 8, 8)).experts(4)
    edit = proposed("mask_loop", program.scenario(tmp_path))
    assert edit.why.startswith("2 loops of 4 iterations")
    assert "bmm" not in program.scenario(tmp_path).run.aten[edit.rows]


BATCH, STATE = 16, 32


def cells(count, first=None, after=(), lines=(0,)):
    """Cells one after the other, µs 60 each: two products and the cell in one op, 10 each on the GPU.

    ``first``: an op that makes each step's input; ``after``: those on each result; ``lines``: of net.py that call one.
    """
    program = Program()
    for _ in range(count):
        for each in first or ():
            program.op(*each)
        for line in lines:
            at = program.events[-1]["ts"] + 40 if program.events else 40
            program.events.append(op("aten::lstm_cell", at, 58))
            if line:
                program.events.append(marker("lstm_cell", line, at, 60))
            shapes = [(BATCH, STATE), (STATE, 4 * STATE)]
            for place, name in enumerate(("mm", "mm", "_thnn_fused_lstm_cell")):
                dims = [list(each) for each in (shapes if name == "mm" else [(BATCH, 4 * STATE)] * 2)]
                program.number += 1
                begin = at + 2 + 18 * place
                program.events += [
                    op(f"aten::{name}", begin, 16, Input_Dims=dims, Input_type=["float"] * 2),
                    call(begin + 2, program.number),
                    kernel(begin + 8, 10, program.number, name=f"void {'sgemm' if name == 'mm' else name}"),
                ]
            program.events.append(op("aten::detach", at + 57, 0.5))
        for each in after:
            program.op(*each)
    for rows in range(8 * count):  # a loop that is all of a run may be the step itself
        program.op("neg", (rows + 1, 3))
    return program


LOOK_UP = ("embedding", (50, STATE), (BATCH,))
HEAD = ("tanh", (BATCH, STATE))


def test_cells_in_a_loop_keep_one_product_and_the_cell_for_each_step(tmp_path):
    """Of 10 steps: one look-up, one product with all inputs and one head; 10 products with the state and 10 cells.

    Without a known GPU, an op over all steps is expected to take as long as two of them: 20 µs.
    """
    scenario = cells(10, [LOOK_UP], [HEAD]).scenario(tmp_path)
    edit = proposed("cell_loop", scenario)
    assert isinstance(edit, Edit) and "calls a cell 10 times" in edit.why
    after = apply(edit, scenario).run
    counts = {name: int((after.aten == name).sum()) for name in ("embedding", "mm", "_thnn_fused_lstm_cell", "tanh")}
    assert counts == {"embedding": 1, "mm": 11, "_thnn_fused_lstm_cell": 10, "tanh": 1}
    assert sorted(after.dur[after.aten == "mm"].tolist()) == [10_000] * 10 + [20_000]


def test_stacked_cells_are_counted_once(tmp_path):
    """Of 10 steps of a look-up and two cells, 70 kernels of 10 µs."""
    scenario = cells(10, [LOOK_UP], lines=(2, 3)).scenario(tmp_path)
    edit = proposed("cell_loop", scenario)
    assert len(edit.rows) == len(set(edit.rows.tolist())) == 70
    assert edit.why.startswith("1 loop calls a cell 10 times") and "70 launches and 0.7 ms" in edit.why
    after = apply(edit, scenario).run  # a look-up, 20 cells, their 20 products with the state, and 2 with all inputs
    counts = {name: int((after.aten == name).sum()) for name in ("embedding", "mm", "_thnn_fused_lstm_cell")}
    assert counts == {"embedding": 1, "mm": 22, "_thnn_fused_lstm_cell": 20}
    assert "0.46 ms are expected" in edit.why  # 40 × 10 µs, and three ops over all steps of 20


def test_an_input_made_from_the_last_result_keeps_the_loop(tmp_path):
    """Nothing looks the input up: the last op that made as many elements is the head of the step before."""
    only = proposed("cell_loop", cells(10, after=[HEAD]).scenario(tmp_path))
    assert isinstance(only, Abstained) and only.why.startswith("an input may come from the step before (tanh")
    only = proposed("cell_loop", cells(10, after=[HEAD, ("relu", (BATCH, 50))]).scenario(tmp_path))  # and another op
    assert isinstance(only, Abstained) and only.why.startswith("an input may come from the step before (tanh")


@pytest.mark.parametrize("op", ["argmax", "multinomial", "topk", "sort", "bernoulli_", "max"])
def test_a_loop_that_samples_keeps_its_steps(op, tmp_path):
    only = proposed("cell_loop", cells(10, [LOOK_UP], [(op, (BATCH, 50))]).scenario(tmp_path))
    assert isinstance(only, Abstained) and f"samples, or is read by the host ({op.rstrip('_')}" in only.why


def test_few_cells_are_no_loop(tmp_path):
    only = proposed("cell_loop", cells(4, [LOOK_UP]).scenario(tmp_path))
    assert only.why == "no cell of a recurrent layer is called 8 times or more within a step"


def test_products_at_once_take_the_flops_and_bytes_of_all_in_so_many_kernels():
    rows = [mm(64, 256, 512, 9_000) for _ in range(4)]
    made = run(*rows)
    flop, nbytes = 4 * 2 * 64 * 256 * 512, 4 * 2 * (64 * 256 + 256 * 512 + 64 * 512)
    (unit,) = {made.limits.unit.values[code] for code in made.limits.unit.codes.tolist()}
    assert at_once_ns(made, [0, 1, 2, 3], 2) == 2 * made.product_ns(flop / 2, nbytes / 2, unit, GROUPED)


@pytest.mark.parametrize(("dtype", "times"), [("float32", 4 * 256 / 448), ("bfloat16", 1.0)])
def test_products_of_several_sizes_are_padded_unless_they_can_be_grouped(dtype, times):
    """64, 64, 64 and 256 rows: as torch.bmm takes them, four times 256. grouped_mm of bf16 takes them as they are."""
    made = run(*[mm(rows, 256, 512, 9_000, dtype=dtype) for rows in (64, 64, 64, 256)])
    flop, nbytes = 2 * 448 * 256 * 512, float(made.nbytes.sum())
    (unit,) = {made.limits.unit.values[code] for code in made.limits.unit.codes.tolist()}
    expected = made.product_ns(times * flop, times * nbytes, unit, GROUPED)
    assert at_once_ns(made, [0, 1, 2, 3], 1) == pytest.approx(expected)


def loop(count, *ops, clips=(), elements=1024):
    """An op after the other for each of so many parameters, 2 µs each."""
    return [
        {"aten": f"aten::{name}", "sizes": [[elements], []], "dtypes": ["float32", ""], "strides": [[1], []],
         "kShortName": "vectorized_elementwise_kernel", "ns": 2_000, "phase": "optimizer", "trace": ["train.py:9"],
         "op": list(clips) or [name]}
        for name in ops for _ in range(count)
    ]  # fmt: skip


def parameter_loop(*rows):
    (only,) = EDIT_RULES["parameter_loop"](of_rows(*rows))
    return only


def test_a_loop_over_parameters_becomes_ops_on_lists():
    """40 tensors: two lists of 30 at most for each of two ops. 80 × 2 µs become the bytes' time and 4 × 2 µs."""
    rows = loop(40, "mul_", "add_")
    edit = parameter_loop(*rows)
    assert len(edit.rows) == 80 and edit.left.tolist() == [4 / 80] * 80
    nbytes = 80 * 2 * 4096  # each reads and writes 1,024 numbers of 4 bytes
    remaining = 1e9 * nbytes / run(*rows).bandwidth + 4 * 2_000
    assert edit.ns.sum() == pytest.approx(remaining)
    assert "mul, add for each parameter: 80 kernels" in edit.why and "about 4 remain" in edit.why
    assert (edit.rule, edit.cost) == ("parameter_loop", COSTS["parameter_loop"])
    assert "torch._foreach_mul_" in edit.change


def test_large_parameters_need_more_lists():
    """Lists hold 30 tensors, or 21 million elements: 16 tensors of 4 million make one list, and 3 more launches."""
    assert parameter_loop(*loop(16, "mul_", elements=1 << 22)).left.tolist() == [(1 + (16 << 22) // CHUNKS) / 16] * 16


def test_clipping_has_a_list_form_of_its_own():
    rows = loop(20, "linalg_vector_norm", clips=["clip_grad_norm_"])
    assert "foreach=True" in parameter_loop(*rows).change


def test_few_ops_or_those_of_torch_optim_are_no_loop_of_the_program():
    assert isinstance(parameter_loop(*loop(15, "mul_")), Abstained)
    assert isinstance(parameter_loop(*loop(40, "mul_", clips=["Adam.step"])), Abstained)


def test_loops_of_two_functions_in_one_file_are_two_changes():
    """Clipping, called from line 60, and averages, called from line 61. The loss that line 70 reads once is no part."""
    clip = [{**row, "trace": ["train.py:60", "train.py:7"]} for row in loop(20, "linalg_vector_norm")]
    average = [{**row, "trace": ["train.py:61", "train.py:12"]} for row in loop(20, "lerp_")]
    read = {"kind": "memcpy", "aten": "aten::_local_scalar_dense", "kShortName": "Memcpy DtoH (Device -> Pageable)",
            "bytes": 4, "ns": 1_000, "phase": "optimizer"}  # fmt: skip
    reads = [{**read, "trace": ["train.py:60", "train.py:8"]}] * 20 + [{**read, "trace": ["train.py:60", "train.py:9"]}]
    rows = of_rows(*clip, *reads, *average)
    clipping, averaging = EDIT_RULES["parameter_loop"](rows)
    assert clipping.change.startswith("Clip") and averaging.change.startswith("Update")
    assert clipping.rows.tolist() == list(range(40)) and averaging.rows.tolist() == list(range(41, 61))


def penalty(count, exponent="2", shapes=5, line="train.py:9"):
    """w.pow(2).sum() for each weight, added to the loss, and the gradients of its squares: 2 µs each."""

    def row(aten, sizes, phase="forward", **more):
        return {"aten": f"aten::{aten}", "sizes": sizes, "dtypes": ["float32"] * len(sizes), "ns": 2_000, "op": [aten],
                "kShortName": "vectorized_elementwise_kernel", "phase": phase, "trace": [line], **more}  # fmt: skip

    sizes = [[1 << 20, 1 + i % shapes] for i in range(count)]
    forward = [
        each
        for size in sizes
        for each in (
            row("pow", [size, []], args=["", exponent]),
            row("sum", [size, []], kShortName="reduce_kernel"),
            row("add", [[], []]),
        )
    ]
    return [*forward, *(row("mul", [size, []], "backward", dir="bprop") for size in sizes)]


def test_a_penalty_of_squares_becomes_weight_decay():
    """20 tensors of 1 to 5 times 2**20 elements, four of each: 63 million, a list of 30 tensors and three parts more.

    80 kernels of 2 µs go, and weights and gradients are read and gradients written: 12 bytes per element.
    """
    rows = penalty(20)
    edit = parameter_loop(*rows)
    assert edit.change.startswith("Leave the sum of squares out of the loss")
    assert edit.rows.tolist() == list(range(80)) and "squares of 20 tensors" in edit.why
    elements = 4 * (1 + 2 + 3 + 4 + 5) << 20
    launches = 1 + elements // CHUNKS
    assert edit.ns.sum() == pytest.approx(min(1e9 * 12 * elements / run(*rows).bandwidth + 2000 * launches, 160_000))
    assert edit.left.sum() == launches


def test_what_is_no_penalty_of_squares_stays():
    """Cubes; few tensors; tensors of one shape, as of a loop over samples; and a line that is not known."""
    for rows in (penalty(20, exponent="3"), penalty(15), penalty(20, shapes=1), penalty(20, line="")):
        assert isinstance(parameter_loop(*rows), Abstained)


def behind_backward(shapes, **more):
    """20 sums after the backward pass of a step, of a capture without lines: of tensors of so many shapes in turn."""
    backward = {**mm(64, 64, 64, 9_000), "phase": "backward", "step": 1}
    sums = loop(20, "add_")
    late = [
        {**row, "sizes": [[1024 * (1 + i % shapes)], []], "phase": "other", "step": 1, "trace": None, **more}
        for i, row in enumerate(sums)
    ]
    return parameter_loop(*([{**row, "start": 20_000 * i} for i, row in enumerate([backward, *late])]))


def test_without_lines_only_tensors_of_several_shapes_are_parameters():
    assert isinstance(behind_backward(4), Edit)
    assert isinstance(behind_backward(1), Abstained)  # metrics of 20 tasks


def test_what_ddp_does_with_each_gradient_is_no_loop_of_the_program():
    assert isinstance(behind_backward(4, mod=["torch.distributed.ddp.reducer"]), Abstained)


def cache(*lengths):
    program = Program()
    for length in lengths:
        for _ in range(2):  # keys and values, of the same shapes
            program.op("cat", (4, length, 8), (4, 1, 8))
        program.op("mm", (4, 8), (8, 8))
    return with_lists(program)


def with_lists(program):
    """The operands of concatenations as the list that they are."""
    for event in program.events:
        if event["name"] == "aten::cat":
            event["args"]["Input Dims"] = [event["args"]["Input Dims"], []]
            event["args"]["Input type"] = ["TensorList", ""]
    return program


def test_a_cache_that_grows(tmp_path):
    """Four times two concatenations, each of the last one's result."""
    scenario = cache(10, 11, 12, 13).scenario(tmp_path)
    assert len(list(_grown(scenario.run))) == 8
    assert tensors_grow(scenario)


def test_a_word_is_a_graph_each_time_once_its_cache_is_static(tmp_path):
    """Four words: a concatenation, a product, and 30 ops over as many places as there are by then. With a static cache
    all words have 14 places, and of each word's 32 launches the first remains."""
    program = Program()
    for length in (10, 11, 12, 13):
        program.op("cat", (4, length, 8), (4, 1, 8)).op("mm", (4, 8), (8, 8))
        for _ in range(30):
            program.op("tanh", (4, length + 1))
    scenario = with_lists(program).scenario(tmp_path)
    only = proposed("part_graph", scenario)
    assert isinstance(only, Abstained) and only.needs == "static_cache"
    edit = proposed("part_graph", apply(proposed("static_cache", scenario), scenario))
    assert "4 times per capture the host launches the same 32 kernels" in edit.why and len(edit.rows) == 4 * 31


def test_concatenations_of_equal_sizes_are_no_cache(tmp_path):
    scenario = cache(10, 10, 10, 10).scenario(tmp_path)
    only = proposed("static_cache", scenario)
    assert isinstance(only, Abstained) and not tensors_grow(scenario)


def test_a_concatenation_joins_two_shapes_in_one_dimension():
    assert _joined([(2, 7, 8), (2, 1, 8)]) == (2, 8, 8)
    assert _joined([(2, 7, 8), (2, 7, 8)]) is None
    assert _joined([(2, 7, 8), (1, 1, 8)]) is None
    assert _joined([(2, 1, 8), (2, 7, 8)]) is None  # a piece before what has grown is no cache


def test_a_loop_that_takes_from_what_it_computes_is_left_alone(tmp_path):
    """As where a model is called again and again, each time with a mask over its own states."""
    program = Program().op("topk", (TOKENS, WIDTH))
    for _ in range(6):
        program.op("gelu", (TOKENS, WIDTH))
        program.op("nonzero", (TOKENS,), copied=True)
        program.op("index", (TOKENS, WIDTH), ())
        program.op("mm", (100, WIDTH), (WIDTH, WIDTH))
    assert isinstance(proposed("mask_loop", program.scenario(tmp_path)), Abstained)


def test_words_that_are_generated_are_no_loop_over_masks(tmp_path):
    program = Program().op("topk", (TOKENS, WIDTH)).op("topk", (TOKENS, WIDTH))
    for _ in range(6):
        program.op("nonzero", (8,), copied=True)
        program.op("mm", (100, WIDTH), (WIDTH, WIDTH)).op("argmax", (100, WIDTH))
    assert isinstance(proposed("mask_loop", program.scenario(tmp_path)), Abstained)


def test_a_capture_without_marked_steps_that_only_repeats_is_no_loop(tmp_path):
    only = proposed("mask_loop", Program().experts(20).scenario(tmp_path))
    assert isinstance(only, Abstained)


def test_the_backward_of_rows_has_their_numbers_step_and_lines():
    def row(number, step, phase="backward"):
        return {"aten": "aten::mul", "op": ["mul"], "trace": ["a.py:1"], "seqId": [number], "step": step,
                "phase": phase, "kShortName": "k", "ns": 10}  # fmt: skip

    made = run(row(5, 0, "forward"), row(6, 0, "forward"), row(5, 0), row(9, 0), row(5, 1))
    assert mask_loops.with_backward(made, [0], {mask_loops.place(made, each) for each in range(made.rows)}) == [0, 2]


def test_each_loop_is_long_enough_for_itself():
    """Five iterations, a line of another kind, and three more: the latter are too few, wherever they stand."""

    def row(op, line):
        return {"aten": f"aten::{op}", "op": [op], "trace": [f"net.py:{line}"], "sizes": [[8, 4]], "ns": 10, "step": 0,
                "kShortName": "k", "phase": "forward"}  # fmt: skip

    made = run(*[row("nonzero", 1), row("mul", 2)] * 5, row("add", 9), *[row("nonzero", 1), row("mul", 2)] * 3)
    found = list(mask_loops._loops(made, [0, 2, 4, 6, 8, 11, 13, 15]))
    assert [times for _, times in found] == [5]


def test_gradients_that_iterations_add_up_are_made_once():
    """Four iterations read x and a row of w, and write y: three sums of x's and w's gradients, three copies of y's."""

    def back(name, shape, count):
        row = {"aten": f"aten::{name}", "sizes": [shape], "dtypes": ["float32"], "ns": 10_000, "trace": ["net.py:5"],
               "phase": "backward", "dir": "bprop", "kShortName": f"{name}_kernel", "op": ["__getitem__"]}  # fmt: skip
        return [row] * count

    made = run(*back("add_", [TOKENS, WIDTH], 3), *back("copy_", [TOKENS, WIDTH], 3), *back("add_", [4, WIDTH], 3),
               *back("fill_", [TOKENS, WIDTH], 4), *back("mul", [TOKENS, WIDTH], 3))  # fmt: skip
    assert mask_loops._links(made, list(range(made.rows)), 4) == set(range(9))
    assert mask_loops._links(made, list(range(made.rows)), 5) == set()
