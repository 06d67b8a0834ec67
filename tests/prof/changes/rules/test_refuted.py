"""What a capture refutes is not proposed: by runs made by hand, and by captures of programs that nobody here wrote."""

import numpy as np
import pytest

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.find_changes import find_changes
from pyprof.prof.changes.rules import EDIT_RULES, RULES
from pyprof.prof.changes.rules.host.copies import small_made_often
from pyprof.prof.changes.rules.host.graphs import decides_on_host, recomputes
from pyprof.prof.changes.rules.host.host_waits import reads_of_scaler
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import MAIN, call, kernel, op, x
from tests.prof.changes.effect.test_scenario import base, of_rows
from tests.prof.changes.rules import advice_rows
from tests.prof.changes.rules.test_attention import attention, bmm, over_scores
from tests.prof.changes.rules.test_float8 import linear
from tests.prof.changes.rules.test_fusion import ew
from tests.prof.changes.rules.test_waiting import allreduce
from tests.prof.changes.rules.test_waiting import kernel as row

STEP = 6_000  # µs: 10 launches, a pause of 5 ms, a copy of input data, 30 launches


def found(rule, *rows):
    return list(RULES[rule](advice_rows.run(*rows)))


def proposals(rule, scenario):
    return list(EDIT_RULES[rule](scenario))


def steps(sizes=lambda step: [8, 8], *more):
    """Events of two such steps: launches of 5 µs, one each 10, followed by kernels of 2."""
    events = [*more]
    for step in range(2):
        begin, corr = 10 + step * STEP, 100 * (step + 1)
        events.append(x("user_annotation", f"ProfilerStep#{step}", begin - 5, STEP - 5, MAIN))
        for at in [*range(0, 100, 10), *range(5_110, 5_410, 10)]:
            corr += 1
            events += [op("aten::relu", begin + at - 1, 7, Input_Dims=[sizes(step)], Input_type=["float"]),
                       call(begin + at, corr), kernel(begin + at + 8, 2, corr)]  # fmt: skip
        copied = x("cuda_runtime", "cudaMemcpyAsync", begin + 5_100, 5, MAIN, correlation=corr + 1)
        moved = kernel(begin + 5_106, 2, corr + 1, name="Memcpy HtoD (Pinned -> Device)", bytes=1 << 20)
        events += [op("aten::copy_", begin + 5_099, 8), copied, moved | {"cat": "gpu_memcpy"}]
    return events


def test_a_graph_leaves_what_the_host_does_before_a_copy_of_input_data(tmp_path):
    """As sampling and loading are done: 5 ms before the copy, by the host, in each step."""
    scenario = captured(base(tmp_path, *steps()))
    (only,) = proposals("cuda_graph", scenario)
    assert isinstance(only, Edit) and scenario.run.count(len(only.rows)) == 40  # 41 launches, less the copy's
    before, after = scenario.step_ns(1.0, np.zeros(0)), apply(only, scenario).step_ns(1.0, np.ones(1))
    # of 40 × 10 µs of launches, a hundredth remains: 6,000 - 400 + 4, but for the GPU's last kernels
    assert before == STEP * 1000 and after == pytest.approx(5_604_000, abs=20_000)


def test_tensors_whose_sizes_differ_from_step_to_step_are_in_no_graph(tmp_path):
    (only,) = proposals("cuda_graph", captured(base(tmp_path, *steps(lambda step: [8 + step, 8]))))
    assert only == Abstained("cuda_graph", "sizes of tensors differ from step to step")


def test_steps_that_launch_other_numbers_of_kernels_are_in_no_graph(tmp_path):
    """The second step ends after 30 of its 40 launches, and its copy."""
    events = [event for event in steps() if event["ts"] < 10 + STEP + 5_308]
    (only,) = proposals("cuda_graph", captured(base(tmp_path, *events)))
    assert only == Abstained("cuda_graph", "the steps do not launch equally many kernels")


@pytest.mark.parametrize("rule", ["cuda_graph", "part_graph"])
def test_where_a_graph_is_being_captured_none_is_proposed(tmp_path, rule):
    begin = x("cuda_runtime", "cudaStreamBeginCapture_v10000", 2, 1, MAIN)
    (only,) = proposals(rule, captured(base(tmp_path, *steps(lambda step: [8, 8], begin))))
    assert isinstance(only, Abstained) and "captures CUDA graphs already" in only.why


LOADERS = {  # by iterator and ms in it
    ("_MultiProcessingDataLoaderIter", 8): (
        "Give the DataLoader more workers",
        "waits for a batch from worker processes",
    ),
    ("_MultiProcessingDataLoaderIter", 1): ("Let the DataLoader's workers prepare", "beside the DataLoader's workers"),
    ("_SingleProcessDataLoaderIter", 8): ("Load data in the background", "makes the next batch itself"),
    ("", 0): ("Load data in the background", "pauses before copies of input data"),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_who_makes_the_batches_is_told_by_the_loaders_marks(tmp_path, loader):
    """A pause of 9 ms before a copy of input data."""
    iterator, ms = loader
    marked = x("user_annotation", f"enumerate(DataLoader)#{iterator}.__next__", 600, 1_000 * ms, MAIN)
    copied = x("cuda_runtime", "cudaMemcpyAsync", 9_600, 5, MAIN, correlation=2)
    moved = kernel(9_610, 20, 2, name="Memcpy HtoD (Pinned -> Device)", bytes=1 << 20) | {"cat": "gpu_memcpy"}
    back = x("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 9_700, 20, MAIN)
    events = [call(0, 1), kernel(10, 500, 1), op("aten::copy_", 9_598, 10), copied, moved, back,
              call(9_705, 3), kernel(9_720, 100, 3)]  # fmt: skip
    events += [marked] if iterator else []
    (only,) = proposals("data_loader", captured(base(tmp_path, *events)))
    change, why = LOADERS[loader]
    assert only.change.startswith(change) and why in only.why


@pytest.mark.parametrize(("more", "code"), [([], "quantize_"), ([row(5_000_000, 10, phase="backward")], "_training")])
def test_float8_is_that_of_training_only_where_something_goes_back(more, code):
    """A product of a linear layer of 962 GFLOP, which takes twice the 0.65 ms that it would in FP8."""
    scenario = of_rows(linear(8192, 4096, 14336, ns=3_000_000, start=0), *more)
    (only,) = proposals("fp8", scenario)
    assert code in only.change and ("quantize_" in only.change) != ("_training" in only.change)


def read(start, **more):
    return {"kShortName": "Memcpy DtoH (Device -> Pinned)", "kind": "memcpy", "bytes": 4, "ns": 1_000,
            "aten": "aten::_local_scalar_dense", "start": start, "phase": "forward", **more}  # fmt: skip


def test_gradscalers_read_is_not_the_programs():
    """loss.item(), then GradScaler.step: unscale, read whether gradients are finite, step; then a metric's read."""
    rows = [
        row(0, 100),
        read(5_000),
        row(10_000, 100, aten="aten::_amp_foreach_non_finite_check_and_unscale_", phase="optimizer"),
        read(20_000, phase="optimizer"),
        row(30_000, 100, aten="aten::_foreach_add_", phase="optimizer"),
        read(40_000),
    ]
    assert reads_of_scaler(advice_rows.run(*rows)).tolist() == [3]
    (only,) = proposals("item", of_rows(*rows))
    assert only.rows.tolist() == [1, 5]
    (none,) = proposals("item", of_rows(*rows[2:5]))
    assert isinstance(none, Abstained) and "GradScaler" in none.why


def test_a_condition_on_a_tensor_is_no_value_to_add_up():
    asked = read(5_000, nodes=["aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"])
    (only,) = proposals("item", of_rows(row(0, 100), asked, row(50_000, 100)))
    assert "torch.where" in only.change and "every few steps" not in only.change


def loop(words=3, end=("cat", "sum"), **more):
    """Two steps of a loop that ends by a condition: three products and the question; then other ops."""
    asked = {"nodes": ["aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"], "trace": ["write.py:7"], **more}
    for step in range(2):
        for word in range(words):
            at = 1_000_000 * step + 10_000 * word
            yield from (row(at + 200 * n, 100, step=step, aten="aten::mm", phase="forward") for n in range(3))
            yield read(at + 1_000, step=step, **asked)
        for n, name in enumerate(end):
            yield row(at + 2_000 + 200 * n, 100, step=step, aten=f"aten::{name}", phase="forward")


def test_a_condition_that_ends_a_loop_is_asked_less_often():
    (only,) = proposals("item", of_rows(*loop()))
    assert only.title == "Ask only every few iterations whether a loop is done" and len(only.rows) == 6
    (value,) = proposals("item", of_rows(*loop(nodes=["aten::item", "aten::_local_scalar_dense"])))
    assert value.title.startswith("Do not read values")
    for rows in (loop(words=2), loop(end=["mm"]), loop(end=[])):  # too few to tell; nothing else after the loop
        (condition,) = proposals("item", of_rows(*rows))
        assert "torch.where" in condition.change


def test_a_size_that_an_op_of_pytorch_reads_is_no_value_to_read_later():
    """bincount asks for the greatest number; the program reads one value."""
    asked = read(5_000, nodes=["aten::bincount", "aten::item", "aten::_local_scalar_dense"], op=["bincount"])
    scenario = of_rows(row(0, 100), asked, read(20_000, nodes=["aten::item", "aten::_local_scalar_dense"]))
    scenario.released = np.zeros(3, bool)
    (value,), (size,) = proposals("item", scenario), proposals("size_sync", scenario)
    assert (value.rows.tolist(), size.rows.tolist()) == ([2], [1])
    assert "whose result's size" in size.title and "(bincount)" in size.why


def copy_to_gpu(start, nbytes, **more):
    return {"kShortName": "Memcpy HtoD (Pageable -> Device)", "kind": "memcpy", "bytes": nbytes, "ns": 1_000,
            "aten": "aten::copy_", "start": start, "phase": "forward", "trace": ["net.py:9"], **more}  # fmt: skip


@pytest.mark.parametrize(
    ("nbytes", "count", "one_by_one"),
    [(4, 20, True), (4, 3, False), (1 << 20, 20, False)],
    ids=["twenty values of one line", "labels, lengths and weights of a batch", "large tensors"],
)
def test_values_that_are_made_one_by_one_are_no_batch(nbytes, count, one_by_one):
    made = advice_rows.run(row(0, 100), *[copy_to_gpu(10_000 + 10_000 * n, nbytes) for n in range(count)])
    assert small_made_often(made, np.arange(1, count + 1)).tolist() == [one_by_one] * count


def test_a_host_that_decides_by_what_it_has_read_is_in_no_graph():
    """It copies many small tensors to the GPU after it has read values in the same step, and not before."""
    small = [copy_to_gpu(20_000 + 10_000 * n, 4) for n in range(20)]
    for start, decides in ((5_000, True), (500_000, False)):
        scenario = of_rows(row(0, 100), read(start), *small)
        scenario.base.run = scenario.run
        assert decides_on_host(scenario) is decides


def test_layers_that_run_again_are_in_no_graph():
    forward = advice_rows.mm(64, 64, 64, 50_000, nodes=["aten::linear", "aten::matmul", "aten::mm"])
    again = {**forward, "phase": "backward", "dir": "fprop", "nodes": ["MmBackward0", *forward["nodes"]]}
    for second, does in ((again, True), (forward, False)):
        scenario = of_rows(forward, second)
        scenario.proposals = {}
        assert recomputes(scenario) is does


def test_two_loops_over_parameters_are_two_changes():
    """One line has a loop of 20 kernels, and another one, too: each is taken, though both have one title."""

    def loop(line):
        return [
            row(100_000 * line + 1_000 * n, 100, aten="aten::mul_", sizes=[[n + 1, 8], []], phase="optimizer",
                trace=[f"net.py:{line}"], op=["my_update"])
            for n in range(20)
        ]  # fmt: skip

    one, other = proposals("parameter_loop", of_rows(*loop(1), *[{**each, "trace": ["ema.py:7"]} for each in loop(2)]))
    assert one.title == other.title and one.key != other.key


@pytest.mark.parametrize("key", ["nodes", "op"])
def test_attention_of_a_module_of_pytorch_has_no_formula_to_rewrite(key):
    inside = {key: ["aten::_native_multi_head_attention" if key == "nodes" else "multi_head_attention_forward"]}
    rows = [{**each, **inside} for each in attention()]
    (finding,) = found("attention", *rows)
    (edit,) = proposals("attention", of_rows(*rows))
    assert "need_weights=False" in finding.change and finding.change == edit.change


def test_the_length_of_a_sequence_is_no_layers_width():
    """Scores of 1025 by 1025: padding them takes a mask. A head of 65 may be padded."""
    odd = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_align1"
    scores = over_scores("_softmax", 130_000) | {"sizes": [[8, 12, 1025, 1025], []]}
    product = bmm(1025, 64, 1025, 900_000, kShortName=odd)
    assert not found("alignment", product, scores)
    assert found("alignment", product)  # where no softmax says what it is
    assert found("alignment", bmm(1024, 65, 1024, 900_000, kShortName=odd), scores)


def test_equal_calls_are_no_chain():
    """Ten times torch.add(A, B): nothing reads what another wrote. In a backward pass, gradients add up in place."""
    assert not advice_rows.changes(*[ew("add", full=2)] * 10)
    assert not [each for each in proposals("compile", of_rows(*[ew("add", full=2)] * 10)) if isinstance(each, Edit)]
    assert found("fusion", *[ew("add", full=2)] * 3, ew("mul"))
    assert found("fusion", *[ew("add_", full=2, phase="backward", dir="bprop")] * 4)


@pytest.mark.parametrize("pool", [True, False])
def test_memory_that_comes_and_goes_between_launches_has_no_pool(tmp_path, pool):
    """20 launches, 10 blocks taken and freed: all at the end, as empty_cache() does, or each between two launches."""
    events = [x("user_annotation", "ProfilerStep#1", -5, 3_000, MAIN)]
    for n in range(20):
        freed = 2_100 + 10 * n if pool else 100 * n + 50
        events += [call(100 * n, n + 1), kernel(100 * n + 8, 2, n + 1)]
        if n % 2:
            events += [x("cuda_runtime", "cudaMalloc", 100 * n + 20, 5, MAIN, correlation=100 + n),
                       x("cuda_runtime", "cudaFree", freed, 5, MAIN, correlation=200 + n)]  # fmt: skip
    events += [call(2_500, 50), kernel(2_510, 2, 50)]
    (only,) = proposals("allocator", captured(base(tmp_path, *events)))
    assert ("empty_cache" in only.change) is pool and ("PYTORCH_NO_CUDA_MEMORY_CACHING" in only.change) is not pool


def test_a_first_derivative_that_is_recorded_is_no_checkpointing():
    """x @ w forward, and with create_graph=True two products of the same sizes within its node. Where the program's own
    call runs again in a node, it is checkpointing."""
    forward = advice_rows.mm(64, 64, 64, 50_000, nodes=["aten::linear", "aten::matmul", "aten::mm"])
    again = {"phase": "backward", "dir": "fprop"}
    formula = {**forward, **again, "nodes": ["MmBackward0", "aten::mm"]}
    (only,) = proposals("kept_activations", of_rows(forward, forward, formula, formula))
    assert isinstance(only, Abstained)
    direct = {**forward, "nodes": ["aten::mm"]}
    (only,) = proposals("kept_activations", of_rows(direct, direct, formula, formula))
    assert isinstance(only, Abstained)
    called = {**forward, **again, "nodes": ["MmBackward0", *forward["nodes"]]}
    (only,) = proposals("kept_activations", of_rows(forward, called))
    assert isinstance(only, Edit) and only.rows.tolist() == [1]


def test_messages_of_inference_are_no_gradients():
    """All-reduces of tensor parallelism, each of which the next layer needs."""
    messages = [allreduce(20_000 + 210_000 * i, 200_000, 10_000_000, phase="forward") for i in range(4)]
    assert not found("communication", row(0, 10_000), *messages)
    assert found("communication", row(0, 10_000, phase="backward"), *messages)


# Capture -> words that no card or change may have, and words that one must have.
REFUTED = {
    "round3/h200_graphsage_sampling.json.gz": ("CUDA graph", "Load data in the background"),
    "round3/rtx2080ti_resnet_loader.json.gz": ("Load data in the background", "more workers"),
    "round3/t4_amp_workers.json.gz": ("Load data in the background", "more workers"),
    "round3/gh200_native_mha.json.gz": ("scaled_dot_product_attention", "need_weights=False"),
    "round3/h100_timesformer.json.gz": ("3137", "Use fused attention"),
    "round3/mi300x_add_loop.json.gz": ("Fuse", ""),
    "round3/mi300x_ddp_resnet18_no_pool.json.gz": ("empty_cache", "PYTORCH_NO_HIP_MEMORY_CACHING"),
    "round3/cases/square_gpu.json.gz": ("Keep activations", "Use mixed precision"),
    "round2/tracelens_sglang_capture.json.gz": ("CUDA graph", ""),
    "round2/tracelens_vllm_capture.json.gz": ("CUDA graph", ""),
}


@pytest.mark.parametrize("name", REFUTED)
def test_what_a_capture_refutes_is_not_advised(data, name):
    loaded = load_table(data / name, host=True)
    listed = find_changes(loaded.table, annotate(loaded.table), loaded.host).document
    said = " ".join([each.change for each in listed.changes] + [each.title for each in listed.not_chosen])
    never, still = REFUTED[name]
    assert never not in said and still in said


def test_sampling_on_the_cpu_is_in_no_graph(data):
    """The sizes of sampled neighbourhoods differ, once neither values nor sizes are read within the step."""
    loaded = load_table(data / "round3/h200_graphsage_sampling.json.gz", host=True)
    scenario = captured(BaseRun(loaded.table, annotate(loaded.table), loaded.host, loaded.name))
    for rule in ("item", "size_sync"):
        for each in proposals(rule, scenario):
            scenario = apply(each, scenario)
    (only,) = proposals("cuda_graph", scenario)
    assert only == Abstained("cuda_graph", "sizes of tensors differ from step to step")
