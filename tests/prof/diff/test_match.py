"""Which ops of two captures are the same one: a program before and after a change, by hand."""

import pytest

from pyprof.prof.diff.match import match
from tests.prof.diff.diff_rows import NO_TC, TC, compared, entry, mm, row, side, table_of

BLOCK = "GPT:h.{}:mlp"


def ways(a, b) -> dict[str, list[tuple[list[str], list[str]]]]:
    """How the rows of a step were matched: way -> the ops of both sides."""
    sides = [side(table_of([rows])) for rows in (a, b)]
    found: dict[str, list[tuple[list[str], list[str]]]] = {}
    for one in match(sides[0].lines, sides[1].lines):
        found.setdefault(one.how, []).append(tuple([line.place.op for line in lines] for lines in (one.a, one.b)))
    return found


def test_equal_calls_are_the_same():
    assert ways([mm(5, layer="GPT:head"), row(1, "relu")], [mm(3, layer="GPT:head"), row(1, "relu")]) == {
        "same": [(["linear"], ["linear"]), (["relu"], ["relu"])]
    }


def test_two_calls_of_one_op_are_told_apart_by_shapes():
    found = compared([[mm(5, n=64), mm(9, n=128)]], [[mm(9, n=128), mm(4, n=64)]])
    assert entry(found, "linear").how == ("same",)
    assert entry(found, "linear").ns.change == -1000


def test_changed_shapes_are_the_same_op_with_other_arguments():
    found = compared([[mm(12, n=50257, layer="GPT:head")]], [[mm(2, n=50304, layer="GPT:head")]])
    head = entry(found, "head linear")
    assert (head.status, head.ns.before, head.ns.after) == ("args", 12_000, 2_000)


def test_several_changed_shapes_are_paired_in_the_order_of_the_step():
    a = [mm(10, n=50257, layer="GPT:head"), mm(20, m=50257, layer="GPT:head", name=NO_TC)]
    b = [mm(1, n=50304, layer="GPT:head"), mm(2, m=50304, layer="GPT:head")]
    found = compared([a], [b])
    (swap,) = found.swaps
    assert (swap.ns.before, swap.ns.after, swap.tc) == (20_000, 2_000, (0.0, 1.0))


def test_another_aten_op_of_the_same_call_stays_in_it():
    a = [row(5, "linear", aten="aten::addmm", layer="GPT:up"), row(1, "linear", aten="aten::copy_", layer="GPT:up")]
    b = [row(4, "linear", aten="aten::_scaled_mm", layer="GPT:up")]
    found = compared([a], [b])
    assert [(e.name, e.how, e.status) for e in found.entries] == [("up linear", ("op",), "same")]
    assert found.entries[0].ns.change == -2000


def test_an_extra_kernel_of_an_op_does_not_appear_as_an_op():
    a = [mm(5, layer="GPT:up")]
    b = [mm(5, layer="GPT:up"), row(1, "linear", aten="aten::copy_", layer="GPT:up", name="copy")]
    found = compared([a], [b])
    assert [(e.name, e.status) for e in found.entries] == [("up linear", "same")]


def test_a_renamed_layer_is_moved():
    found = compared([[mm(5, layer="GPT:up"), mm(2, k=32, layer="GPT:down")]],
                     [[mm(4, layer="GPT:fc1"), mm(2, k=32, layer="GPT:fc2")]])  # fmt: skip
    assert [(e.name, e.status, e.ns.change) for e in found.entries] == [
        ("up linear", "moved", -1000), ("down linear", "moved", 0)
    ]  # fmt: skip


def test_replaced_ops_of_a_layer_are_compared_as_the_layer():
    a = [mm(9, layer="GPT:h.0"), row(3, "gelu", layer="GPT:h.0")]
    b = [mm(9, layer="GPT:h.0"), row(1, "relu", layer="GPT:h.0")]
    found = compared([a], [b])
    replaced = entry(found, "h.* gelu -> relu")
    assert (replaced.status, replaced.ns.change) == ("layer", -2000)


def test_what_has_no_counterpart_appears_or_vanishes():
    up = mm(5, layer="GPT:up")
    found = compared([[up, row(2, "dropout", layer="GPT:drop")]], [[up, row(3, "topk", phase="backward")]])
    assert {(e.name, e.status, e.ns.before, e.ns.after) for e in found.entries} == {
        ("up linear", "same", 5_000, 5_000), ("drop dropout", "vanished", 2_000, 0), ("topk", "appeared", 0, 3_000)
    }  # fmt: skip


def eager():
    rows = []
    for i in range(2):
        at = BLOCK.format(i)
        rows += [mm(10, layer=f"{at}:up"), row(4, "gelu", layer=at), row(2, "layer_norm", layer=f"{at}:norm")]
    return [*rows, mm(30, n=50257, layer="GPT:head"), row(7, "cross_entropy")]


def compiled():
    """As captures of torch.compile have it: one layer, one op, an output more in each product's shapes, and padding."""
    at = {"op": "CompiledFunction", "layer": "GPT"}
    rows = [row(3, name=f"triton_poi_fused_gelu_{i}", **at) for i in range(2)]
    rows += [row(9, name=TC, **at, aten="aten::mm", sizes=[[64, 64], [64, 64], [64, 64]]) for _ in range(2)]
    rows += [row(5, name=TC, **at, aten="aten::mm", sizes=[[64, 64], [64, 50264], [64, 50264]])]
    for each in rows[:2]:
        each["aten"] = each["name"]
    return [*rows, row(8, "cross_entropy")]


def test_compiled_code_is_matched_by_products_and_kinds():
    found = compared([eager()], [compiled()])
    assert {(e.name, e.status, e.ns.before, e.ns.after) for e in found.entries} == {
        ("h.*:mlp:up linear", "moved", 20_000, 18_000),
        ("head linear", "moved", 30_000, 5_000),  # padded by torch.compile
        ("element-wise, norms, copies", "kind", 12_000, 6_000),
        ("cross_entropy", "same", 7_000, 8_000),
    }


def test_compiled_code_against_itself_is_the_same_whatever_its_kernels_numbers():
    other = [{**each, **({"name": f"{each['name']}9", "aten": f"{each['name']}9"} if "triton" in each["name"] else {})}
             for each in compiled()]  # fmt: skip
    found = compared([compiled()], [other])
    assert {e.status for e in found.entries} == {"same"}
    assert found.swaps == []


def test_opaque_graphs_are_compared_with_all_that_is_left():
    graph = {**row(9, name="[CUDA graph 1]"), "kind": "graph"}
    found = compared([[mm(5), row(7, "gelu")]], [[graph, row(1, "relu", phase="backward")]])
    assert [(e.name, e.status) for e in found.entries] == [("all that is not named above", "graph")]


def test_a_capture_without_layers_is_compared_without_them():
    found = compared([[mm(5, layer="GPT:up"), mm(5, layer="GPT:down")]], [[mm(4), mm(4)]])
    assert found.left_out == ("layers",)
    assert [(e.name, e.status, e.ns.change) for e in found.entries] == [("linear", "same", -2000)]


def test_shapes_that_change_with_the_data_are_one_line():
    a = [[mm(5, m=100), mm(5, m=90)], [mm(5, m=80), mm(5, m=70)]]
    b = [[mm(4, m=71), mm(4, m=60)], [mm(4, m=55), mm(4, m=52)]]
    found = compared(a, b)
    assert [(e.name, e.status, e.ns.change, e.count) for e in found.entries] == [("linear", "same", -2000, (2.0, 2.0))]


@pytest.mark.parametrize(
    ("nsys", "kineto"),
    [
        ("[CUDA memset]", "Memset (Device)"),
        ("[CUDA memcpy Host-to-Device]", "Memcpy HtoD (Pageable -> Device)"),
        ("void k<(int)4, (anonymous namespace)::f>(float*)", "void k<4, <unnamed>::f>(float*)"),
    ],
)
def test_kernels_have_one_name_whoever_demangled_it(nsys, kineto):
    a, b = ([[row(5, "linear", name=name)]] for name in (nsys, kineto))
    assert compared(a, b).swaps == []


def test_every_line_is_in_exactly_one_match():
    sides = [side(table_of([rows])) for rows in (eager(), compiled())]
    matches = match(sides[0].lines, sides[1].lines)
    for which, name in ((0, "a"), (1, "b")):
        matched = [id(line) for one in matches for line in getattr(one, name)]
        assert sorted(matched) == sorted(id(line) for line in sides[which].lines)


def test_kernels_without_an_aten_op_are_lines_of_their_own():
    """As in CUDA graphs of compiled code: one op around kernels of all kinds."""
    graph = {"op": "CompiledFxGraph", "aten": ""}
    a = [row(5, name=TC, **graph), row(3, name="fmha_cutlassF_bf16_aligned", **graph), row(2, name="relu_k", **graph)]
    b = [row(4, name=TC, **graph), row(3, name="fmha_cutlassF_bf16_aligned", **graph), row(2, name="gelu_k", **graph)]
    found = compared([a], [b])
    assert [(e.name, e.ns.change, e.status) for e in found.entries] == [("CompiledFxGraph", -1000, "same")]
    (swap,) = found.swaps
    assert ([k.name for k in swap.a], [k.name for k in swap.b]) == (["relu_k"], ["gelu_k"])


def test_a_memset_more_is_no_change_of_kernels():
    same = {"op": "linear", "aten": "aten::mm", "sizes": [[64, 64], [64, 64]]}
    a = [row(100, name=TC, **same)]
    assert compared([a], [[*a, {**row(1, name="[CUDA memset]", **same), "kind": "memset"}]]).swaps == []
    (swap,) = compared([a], [[*a, row(9, name="splitKreduce_kernel", **same)]]).swaps
    assert (swap.a, [k.name for k in swap.b]) == ((), ["splitKreduce_kernel"])
