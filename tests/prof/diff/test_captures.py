"""Real pairs from an H200: numbers counted in the traces' own events, apart from pyprof.

Of the steps after the first (which warms the profiler up), a step lasts from where its mark reaches the GPU (the end of
the work launched before `ProfilerStep#N`, later than the mark because the host runs ahead) to where the next one does;
`raw_steps` of tests/prof/timing/test_steps.py gave these.
"""

import io
import math

import numpy as np
import pytest

from pyprof.prof.diff.compare import Comparison, compare
from pyprof.prof.diff.gate import check, parse_gate
from pyprof.prof.diff.json_document import difference
from pyprof.prof.diff.lines import Side, make_side
from pyprof.prof.diff.sentences import clock_words, headline, warnings
from pyprof.prof.diff.write_html import write_html
from pyprof.prof.diff.write_terminal import write_terminal
from pyprof.prof.load import load_table
from pyprof.table.columns import NULL, Table
from pyprof.table.gpu_samples import GpuSamples
from tests.prof.diff.diff_rows import entry

EAGER_NS, PADDED_NS, COMPILED_NS = 23_138_245, 10_083_734, 10_493_836  # means of four steps
EAGER_HEAD = {  # the products' kernels, ns a step
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1": 6_683_810,
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1": 4_526_559,
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x256_nt_align1": 4_289_327,
}
PADDED_HEAD = {  # the third one's kernel works in other layers, too
    "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN": 869_001,
    "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NTN": 771_809,
}


@pytest.fixture(scope="module")
def sides(root) -> dict[str, Side]:
    names = ("eager", "padded", "compiled")
    return {name: make_side(load_table(root / f"tests/golden/h200_diff_{name}.json.gz")) for name in names}


@pytest.fixture(scope="module")
def padded(sides) -> Comparison:
    return compare(sides["eager"], sides["padded"])


@pytest.fixture(scope="module")
def compiled(sides) -> Comparison:
    return compare(sides["eager"], sides["compiled"])


def test_steps_are_those_of_the_trace(sides):
    for name, ns in (("eager", EAGER_NS), ("padded", PADDED_NS), ("compiled", COMPILED_NS)):
        assert sides[name].steps.numbers == (5, 6, 7, 8)
        assert sides[name].steps.span_ns.mean() == pytest.approx(ns, abs=2)


def test_a_padded_vocabulary_is_the_same_program_with_a_faster_head(padded):
    assert headline(padded) == "B is 13.06 ms per step faster: 23.14 -> 10.08 ms (-56.4%; noise ±0.05 ms)."
    assert warnings(padded) == []
    assert not any(e.status in ("appeared", "vanished", "moved", "kind") for e in padded.entries)
    for phase in ("forward", "backward"):
        head = entry(padded, "head linear", phase)
        assert head.status == "args"
    assert {e.name for e in padded.entries[:2]} == {"head linear"}
    share = sum(e.ns.change for e in padded.entries[:2]) / padded.step.change
    assert 0.99 < share < 1.01


def test_its_kernels_changed_and_both_use_tensor_cores(padded):
    swaps = padded.swaps
    assert len(swaps) == 3
    before = {k.name: k.ns for swap in swaps for k in swap.a if k.tc == "1"}
    after = {k.name: k.ns for swap in swaps for k in swap.b if k.tc == "1"}
    assert before == pytest.approx(EAGER_HEAD, abs=2)
    assert {name: after[name] for name in PADDED_HEAD} == pytest.approx(PADDED_HEAD, abs=2)
    assert all("align1" in s.a[0].name and s.b[0].name.startswith("nvjet") and s.tc == (1.0, 1.0) for s in swaps)
    assert (padded.tc_lost, padded.tc_gained) == (0, 0)


def test_compiled_code_keeps_its_products_and_names_what_it_did_to_the_head(compiled):
    assert headline(compiled) == "B is 12.65 ms per step faster: 23.14 -> 10.49 ms (-54.6%; noise ±0.06 ms)."
    forward = entry(compiled, "head linear")
    assert forward.status == "moved"
    (swap,) = forward.swaps
    assert swap.shapes == ("[[8192,768],[768,50257]]", "[[8192,768],[768,50264],[8192,50264]]")  # padded by inductor
    (product,) = (k for k in swap.b if k.tc == "1")
    assert (product.name, product.ns) == (
        "nvjet_sm90_tst_160x256_64x4_2x1_v_bz_coopA_TNN",
        pytest.approx(883_321, abs=2),
    )
    # All products are matched by op, and all that inductor fused by phase; nothing but these is left.
    assert {e.status for e in compiled.entries if e.phase in ("forward", "backward")} <= {
        "same",
        "args",
        "moved",
        "kind",
    }
    assert {e.name for e in compiled.entries if e.status == "kind"} == {"element-wise, norms, copies"}
    # The loss's copy reads logits cut out of the padded ones, by a slower kernel: 940,857 ns of elementwise_kernel.
    loss = entry(compiled, "cross_entropy")
    assert loss.ns.change == pytest.approx(940_857, rel=0.01)
    assert compiled.layers == ()


def test_gates_on_them(padded, compiled):
    assert not check(parse_gate("step > 3%"), compiled).fails
    assert check(parse_gate("op:cross_entropy > 5%"), compiled).fails
    assert check(parse_gate("step > -50%"), padded).fails is False
    assert check(parse_gate("step > -60%"), padded).fails
    assert check(parse_gate("layer:head > -80% or kernels > 5"), padded).fails is False


def test_a_capture_does_not_differ_from_itself(sides):
    found = compare(sides["eager"], sides["eager"])
    assert found.step.change == 0
    assert {e.status for e in found.entries} == {"same"}
    assert all(e.ns.change == 0 for e in found.entries)


def test_two_profilers_agree_on_one_program(data):
    """The same GPT-2 step under nsys and torch.profiler, each a run of its own: all ops are found again, and no kernel
    is another; GPU time differs by 0.1% (23.78 and 23.76 ms)."""
    names = ("nsys/h200_gpt2_step.sqlite.gz", "kineto/h200_gpt2_bf16.json.gz")
    found = compare(*(make_side(load_table(data / name)) for name in names))
    assert not any(e.status in ("appeared", "vanished", "moved", "kind", "layer") for e in found.entries)
    assert abs(found.busy.ratio) < 0.002
    assert warnings(found)[-1].startswith("the captures are by different profilers")


def test_a_capture_with_layers_against_one_without(root):
    names = ("h200_lenet.sqlite.gz", "h200_lenet_fp32.json.gz")
    found = compare(*(make_side(load_table(root / "tests/golden" / name)) for name in names))
    assert found.left_out == ("layers", "shapes")
    assert {e.status for e in found.entries} == {"same"}
    assert abs(found.work.ratio) < 0.01


def test_ranks_are_averaged(data):
    """Two ranks in one nsys file: a step is the mean of both."""
    side = make_side(load_table(data / "nsys/h200x2_gpt2_ddp.sqlite.gz"))
    assert side.steps.devices == 2
    found = compare(side, side)
    assert found.step.change == 0
    assert any(kind.name == "communication" for kind in found.kinds)


# Clocks, where --nvml read them


def clocked(root, mhz):
    """A capture of golden, as if its GPU had worked at one clock all the time."""
    loaded = load_table(root / "tests/golden/h200_diff_eager.json.gz")
    table = loaded.table
    known = [int(table.ints(key)[0]) for key in ("rank", "pid", "device")]
    time = np.array([-1_000_000_000, 0, 1_000_000_000])
    none = np.full(3, NULL)
    clock = np.full(3, mhz)
    samples = GpuSamples(*known, "", 50_000_000, 1980, NULL, NULL, time, clock, none, none, none, none, none)
    return make_side(loaded._replace(table=Table(len(table), table.columns, [samples])))


def test_other_clocks_are_said_before_all_else(root):
    found = compare(clocked(root, 1980), clocked(root, 1410))
    words = clock_words(found)
    assert words == (
        "The captures ran at different clocks: the SM clock was 1,980 MHz in A and 1,410 MHz in B (-28.8%), on average "
        "while the GPU worked. For that alone, kernels limited by arithmetic take about 40.4% longer in B."
    )
    out = io.BytesIO()
    write_terminal(found, (), out, 1000, False)
    assert " ".join(out.getvalue().decode().split()).startswith(words)
    document = difference(found, ())
    assert document.sentences[0] == words and (document.a.sm_mhz, document.b.sm_mhz) == (1980, 1410)
    page = io.BytesIO()
    write_html(found, (), page)
    text = page.getvalue().decode()
    assert text.index("different clocks") < text.index("<h1>")


def test_clocks_within_two_percent_and_unknown_ones_are_not_mentioned(root, sides):
    assert clock_words(compare(clocked(root, 1980), clocked(root, 1945))) == ""
    assert clock_words(compare(clocked(root, 1980), sides["eager"])) == ""
    assert math.isnan(sides["eager"].sm_mhz)
