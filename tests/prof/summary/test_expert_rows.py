"""Tokens per expert and padded tiles, counted by hand on a few calls."""

import json
from typing import Any

import numpy as np

from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.expert_rows import ExpertTokens, PaddedTiles, padded_tiles
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Coded, Table

GEMM = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n"


def table(*calls: dict[str, Any]) -> Table:
    rows = [{"kShortName": GEMM, "dir": "fprop", "args": [], **call} for call in calls]

    def text(key: str) -> Coded:
        return Coded.of(v if isinstance(v := row.get(key, ""), str) else json.dumps(v) for row in rows)

    numbers = np.arange(len(rows)) * 1000
    columns = {key: text(key) for key in ("kShortName", "aten", "layer", "sizes", "dtypes", "dir", "args")}
    kind = Coded.of(["kernel"] * len(rows))
    return Table(
        len(rows), {**columns, "kind": kind, "start": numbers, "kDuration": numbers * 0 + 500, "opId": numbers}
    )


def mm(layer: list[str], tokens: int, width: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "aten": "aten::mm",
        "layer": layer,
        "sizes": [[tokens, width], [width, 6]],
        "dtypes": ["bfloat16"] * 2,
        **more,
    }


def expert(number: int, tokens: int, layer: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Two projections up, one down; paths as pyprof's ranges have them."""
    block = f"layers.{layer}.mlp.experts.{number}"
    names = (f"{block}.{part}" for part in ("gate", "up", "down"))
    return [mm(["M", f"layers.{layer}", f"layers.{layer}.mlp", block, name], tokens, **more) for name in names]


def test_tokens_of_each_expert_and_their_imbalance():
    """Of 12 tokens expert 2 has 8: twice the mean of 4. The second layer is even; backward products do not count."""
    first = [*expert(0, 1), *expert(2, 5), *expert(2, 3), *expert(3, 3)]
    second = [*expert(0, 4, layer=1), *expert(1, 4, layer=1)]
    other = [mm(["M", "head"], 99), *expert(0, 77, dir="bprop")]
    found = table(*first, *second, *other)
    numbers = summarise(found, annotate(found))
    assert numbers.experts == (
        ExpertTokens("M:layers.0:mlp:experts.*", (0, 2, 3), (1, 8, 3)),
        ExpertTokens("M:layers.1:mlp:experts.*", (0, 1), (4, 4)),
    )
    assert numbers.experts[0].imbalance == 2.0
    assert (
        "Of 2 layers of experts, the least even is M:layers.0:mlp:experts.*: expert 2 computes 8 of 12 tokens, "
        "2.00 times the mean of the 3 that ran."
    ) in sentences(numbers)


def test_nothing_is_said_of_experts_that_all_compute_as_many_tokens():
    """As where each computes every token: 4 of 8 are no share of the layer's, which has 4."""
    found = table(*expert(0, 4), *expert(1, 4))
    numbers = summarise(found, annotate(found))
    assert numbers.experts == (ExpertTokens("M:layers.0:mlp:experts.*", (0, 1), (4, 4)),)
    assert not [said for said in sentences(numbers) if "of experts" in said or "Experts of" in said]


def test_modules_between_which_others_multiply_are_no_experts_of_one_layer():
    """``experts.0`` and ``experts.1`` of a model with one per block: attention's product is between them."""
    path = ["M", "M.experts.0"], ["M", "M.experts.1"]
    apart = [mm([*path[0], "up"], 9), mm(["M", "M.attention.1"], 30), mm([*path[1], "up"], 3)]
    found = table(*apart, *apart)
    assert summarise(found, annotate(found)).experts == ()
    again = table(*apart, mm([*path[0], "up"], 5), mm([*path[1], "up"], 4))  # once, they follow each other
    assert [layer.tokens for layer in summarise(again, annotate(again)).experts] == [(14, 7)]


def test_numbers_of_classes():
    """Kineto numbers the modules of a class; a class that holds all experts is none."""
    calls = [mm(["Net_0", f"MoeExpert_{n}", f"Linear_{n}"], 3 + n) for n in (4, 5)]
    holder = [mm(["Net_0", f"MixtralExperts_{n}", f"Linear_{n}"], 9) for n in (0, 1)]
    found = table(*calls, *holder)
    assert summarise(found, annotate(found)).experts == (ExpertTokens("Net_0:MoeExpert_*", (4, 5), (7, 8)),)


def align(
    tokens: int, each: int, experts: int, tile: int, name: str = "_moe_C::moe_align_block_size"
) -> dict[str, Any]:
    sizes, args = [[tokens, each], [], [], [999], [99], [1]], ["", str(experts), str(tile), "", "", ""]
    return {
        "aten": name,
        "sizes": sizes,
        "dtypes": ["int32", "", "", *["int32"] * 3],
        "args": args,
        "kShortName": "align",
    }


def test_bounds_of_padded_rows():
    """32 tokens to 4 of 8 experts, tiles of 64: 128 rows fill 2 tiles, or 8 experts begin one each and 120 rows leave
    room for one more: 9. Of 3 rows each of 3 experts begins a tile of 16. The first call runs twice."""
    found = table(align(32, 4, 8, 64), align(32, 4, 8, 64), align(3, 1, 8, 16, "sgl_kernel::moe_align_block_size"))
    assert padded_tiles(found) == (PaddedTiles(1, 16, 3, 16, 48), PaddedTiles(2, 64, 256, 256, 2 * 9 * 64))
    told = sentences(summarise(found, annotate(found)))
    assert (
        "In 2 calls the 256 rows of fused experts are padded to tiles of 64: to at least 256 and at most 1,152 rows. "
        "How many rows each expert has is data on the GPU."
    ) in told


def test_unknown_arguments():
    assert padded_tiles(table({"aten": "_moe_C::moe_align_block_size", "kShortName": "align"})) == ()
