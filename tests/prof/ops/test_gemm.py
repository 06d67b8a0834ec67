"""Matrix products, packed products, contractions: values worked by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import ModelError, ShapeError, UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import FAMILY, UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, i32, t, worked

H, F8, C64 = "bfloat16", "float8_e4m3fn", "complex64"

ROWS: list[Row] = [
    ("mm", (t(4, 5), t(5, 6)), Work(240, 200, 96)),  # 2*4*6*5; (20+30)*4; 24*4
    ("mm", (t(0, 5), t(5, 6)), Work(0, 120, 0)),  # no rows: B alone is there to be read, 30*4
    ("mm", (t(4, 5, dtype=H), t(5, 6, dtype=H), "float32"), Work(240, 100, 96)),  # (20+30)*2; out_dtype: 24*4
    ("mm", (t(4, 5, dtype=C64), t(5, 6, dtype=C64)), Work(960, 400, 192)),  # 8*120; 50*8; 24*8
    ("_int_mm", (t(4, 5, dtype="int8"), t(5, 6, dtype="int8")), Work(240, 50, 96)),  # int32 out: 24*4
    # sparse: 7 elements stored of 20, each multiplies a row of 6: 2*7*6; (7 + 30)*4 and 56 bytes of places
    ("mm", (t(4, 5, nonzero=7, index_bytes=56), t(5, 6)), Work(84, 204, 96)),
    ("_sparse_mm", (t(4, 5, nonzero=7, index_bytes=56), t(5, 6)), Work(84, 204, 96)),
    ("_sparse_addmm", (t(4, 6), t(4, 5, nonzero=7, index_bytes=56), t(5, 6)), Work(84, 300, 96)),
    ("matmul", (t(4, 5, nonzero=7, index_bytes=56), t(5)), Work(14, 104, 16)),
    ("addmm", (t(6), t(4, 5), t(5, 6), 1, 1), Work(240, 224, 96)),  # (6+20+30)*4
    ("addmm", (t(4, 6), t(4, 5), t(5, 6), 0, 1), Work(240, 200, 96)),  # beta = 0: self is not read
    ("addmm", (t(4, 6), t(4, 5), t(5, 6), 0, 1, t(4, 6)), Work(240, 200, 96)),  # out=
    # out_dtype=float32, as a name and as a trace's number: (20 + 30) * 2, self 24, written 24 * 4
    ("addmm", (t(6), t(4, 5, dtype=H), t(5, 6, dtype=H), "float32", 1, 1), Work(240, 124, 96)),
    ("addmm", (t(6), t(4, 5, dtype=H), t(5, 6, dtype=H), 6, 1, 1), Work(240, 124, 96)),
    ("addmm", (t(6), t(4, 5, dtype=H), t(5, 6, dtype=H), 6, 0, 1), Work(240, 100, 96)),
    ("_addmm_activation", (t(6), t(4, 5), t(5, 6)), Work(240, 224, 96)),
    ("_addmm_activation", (t(6), t(4, 5), t(5, 6), 1, 1, True), Work(240, 224, 96)),  # use_gelu: no dtype
    ("_addmm_activation", (t(4, 6), t(4, 5), t(5, 6), 0, 1, False), Work(240, 200, 96)),
    ("bmm", (t(3, 4, 5), t(3, 5, 6)), Work(720, 600, 288)),  # three times the first
    ("baddbmm", (t(4, 6), t(3, 4, 5), t(3, 5, 6)), Work(720, 696, 288)),  # + 24*4 read
    ("addbmm", (t(4, 6), t(3, 4, 5), t(3, 5, 6)), Work(720, 696, 96)),  # one [4,6] out
    ("matmul linalg_matmul", (t(2, 1, 4, 5), t(3, 5, 6)), Work(1440, 520, 576)),  # 6 products; (40+90)*4; 6*24*4
    ("matmul", (t(5), t(5)), Work(10, 40, 4)),  # 2*5; one number
    ("matmul", (t(3, 4, 5), t(5)), Work(120, 260, 48)),  # 2*12*5; (60+5)*4; 12*4
    ("matmul", (t(5), t(3, 5, 6)), Work(180, 380, 72)),  # 2*18*5; (5+90)*4; [3,6]
    ("linear", (t(2, 3, 5), t(6, 5), t(6)), Work(360, 264, 144)),  # 2*6*6*5; (30+30+6)*4; 36*4
    ("linear", (t(2, 3, 5), t(5)), Work(60, 140, 24)),  # a 1-D weight: [2,3] out
    (
        "mkldnn_linear mkldnn::_linear_pointwise",
        (t(3, 5), t(6, 5), None),
        Work(180, 180, 72),
    ),  # 2*3*6*5; 45*4; 18*4
    ("mkl::_mkl_linear _mkl_linear", (t(3, 5), t(40), t(6, 5), t(6), 3), Work(180, 204, 72)),  # packed and as it was
    ("mkldnn::_linear_pointwise", (t(3, 5), t(6, 5), t(6), "relu", [], ""), Work(180, 204, 72)),
    ("mkldnn::_linear_pointwise", (t(3, 5), t(3, 6), t(6, 5), t(6), "add"), Work(180, 204 + 72, 72)),  # an addend
    ("mv", (t(4, 5), t(5)), Work(40, 100, 16)),
    ("addmv", (t(4), t(4, 5), t(5)), Work(40, 116, 16)),
    ("dot", (t(7), t(7)), Work(14, 56, 4)),
    ("vdot linalg_vecdot", (t(7, dtype=C64), t(7, dtype=C64)), Work(56, 112, 8)),  # 8*7
    ("inner", (t(2, 3, 5), t(4, 5)), Work(240, 200, 96)),  # [2,3,4] out: 2*24*5
    ("inner", (t(), t(4, 5)), Work(20, 84, 80)),  # a number times 20
    ("outer", (t(4), t(6)), Work(24, 40, 96)),  # one product each
    ("ger", (t(4, dtype=C64), t(6, dtype=C64)), Work(144, 80, 192)),  # 6 each
    ("addr", (t(4, 6), t(4), t(6)), Work(48, 136, 96)),
    ("linear_backward", (t(3, 5), t(3, 6), t(6, 5), (True, True, True)), Work(372, 396, 204)),
    # dx 2*3*6*5 reads (18+30)*4 = 192 writes 60; dw 180, (18+15)*4 = 132, 120; db (3-1)*6 = 12, 72, 24
    ("linear_backward mkldnn_linear_backward", (t(3, 5), t(3, 6), t(6, 5), (False, True, False)), Work(180, 132, 120)),
    # packed
    ("_scaled_mm", (t(4, 8, dtype=F8), t(8, 6, dtype=F8), t(), t(), None, None, H), Work(384, 88, 48)),  # 32+48+8; 24*2
    (
        "_scaled_mm",
        (t(4, 8, dtype=F8), t(8, 6, dtype=F8), t(), t(), None, None, 15),
        Work(384, 88, 48),
    ),  # as a trace says
    ("_scaled_mm", (t(4, 8, dtype=F8), t(8, 6, dtype=F8), UNKNOWN, UNKNOWN), Work(384, 88, 24)),  # out in A's type
    (
        "_scaled_mm",
        (t(4, 4, dtype="float4_e2m1fn_x2"), t(4, 6, dtype="float4_e2m1fn_x2"), t(4, 1), t(1, 6), None, None, H),
        Work(384, 80, 48),
    ),  # two numbers a byte: K = 8; 16+24 + (4+6)*4
    (
        "_scaled_mm_v2",
        (t(4, 8, dtype=F8), t(8, 6, dtype=F8), (t(),), (0,), (0,), (t(),), (0,), (0,), None, H),
        Work(384, 88, 48),
    ),
    ("_grouped_mm", (t(7, 5, dtype=H), t(3, 5, 6, dtype=H), t(3, dtype="int32")), Work(420, 262, 84)),
    # rows in 3 groups: 2*7*6*5; 35*2 + 90*2 + 12; 42*2
    ("_grouped_mm", (t(4, 9, dtype=H), t(9, 6, dtype=H), t(3, dtype="int32")), Work(432, 192, 144)),
    # K in 3 slices: 2*4*6*9; 72+108+12; [3,4,6]
    ("_grouped_mm", (t(3, 4, 5, dtype=H), t(5, 9, dtype=H), t(3, dtype="int32")), Work(360, 222, 72)),  # 2*4*9*5
    ("_grouped_mm", (t(3, 4, 5, dtype=H), t(3, 5, 6, dtype=H), None), Work(720, 300, 144)),
    (
        "_scaled_grouped_mm",
        (t(7, 5, dtype=F8), t(3, 5, 6, dtype=F8), t(7), t(3, 6), t(3, dtype="int32"), None, None, H),
        Work(420, 237, 84),
    ),  # 35+90 + 28+72 + 12
    (
        "_scaled_grouped_mm_v2",
        (
            t(7, 5, dtype=F8),
            t(3, 5, 6, dtype=F8),
            (t(7),),
            (0,),
            (0,),
            (t(3, 6),),
            (0,),
            (0,),
            i32(3),
            None,
            H,
            (),
            True,
        ),
        Work(420, 237, 84),
    ),
    ("_weight_int8pack_mm", (t(4, 5, dtype=H), t(6, 5, dtype="int8"), t(6, dtype=H)), Work(240, 82, 48)),  # 40+30+12
    (
        "_weight_int4pack_mm",
        (t(4, 32, dtype=H), t(1, 1, 32, 4, dtype="int32"), 32, t(1, 8, 2, dtype=H)),
        Work(2048, 800, 64),
    ),  # N = 8: 2*4*8*32; 256 + 128*4 + 32; 32*2
    (
        "_weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros",
        (t(4, 32, dtype=H), t(8, 16, dtype="uint8"), 32, t(1, 8, 2, dtype=H)),
        Work(2048, 416, 64),
    ),  # 256 + 128 + 32
    # [4,32] @ [32,8]: 2*4*8*32; 256 + 256 + 16 + 16, and 128 where two weights share a byte; 32*2
    (
        "_mixed_dtypes_linear",
        (t(4, 32, dtype=H), t(32, 8, dtype="uint8"), t(8, dtype=H), t(8, dtype=H)),
        Work(2048, 544, 64),
    ),
    ("_mixed_dtypes_linear", (t(4, 32, dtype=H), t(32, 4, dtype="uint8"), t(8, dtype=H)), Work(2048, 400, 64)),
    ("_mixed_dtypes_linear", (t(4, 32, dtype=H), t(8, 32, dtype="uint8"), t(8, dtype=H)), ShapeError),
    ("_cslt_sparse_mm", (t(4, 18, dtype=H), t(32, 6, dtype=H)), Work(768, 528, 48)),
    # half of K = 32 and 2 columns of positions: 2*4*16*6; 144 + 384; 24*2
    ("_sparse_semi_structured_mm", (t(4, 8, dtype=H), t(4, 1, dtype="int16"), t(16, 6, dtype=H)), Work(384, 264, 48)),
    # half of K = 16: 2*4*8*6; 64 + 8 + 192; 24*2
    (
        "_sparse_semi_structured_linear",
        (t(6, 16, dtype=H), t(4, 8, dtype=H), t(4, 1, dtype="int16")),
        Work(384, 264, 48),
    ),
    # a bias of 4 rows: 8 bytes more
    (
        "_sparse_semi_structured_addmm",
        (t(4, dtype=H), t(4, 8, dtype=H), t(4, 1, dtype="int16"), t(16, 6, dtype=H), 1, 1, None),
        Work(384, 272, 48),
    ),
    # [4,32] of 16 bits, 256 bytes: half of it and 2 bits for each value left, 128 + 16; of 8 bits 64 + 16
    ("_cslt_compress", (t(4, 32, dtype=H),), Work(0, 256, 144)),
    ("_cslt_compress", (t(4, 32, dtype="int8"),), Work(0, 128, 80)),
    (
        "_sparse_semi_structured_tile",
        (t(32, 32, dtype=H), "", True),
        (
            t(32, 16, dtype=H),
            t(32, 2, dtype="int16"),
            t(32, 16, dtype=H),
            t(32, 2, dtype="int16"),
            t(128, dtype="uint8"),
        ),
        Work(0, 2048, 1024 + 128 + 1024 + 128 + 128),
    ),
    ("_sparse_semi_structured_apply", (t(32, 32, dtype=H), t(128, dtype="uint8")), Work(0, 2176, 2048)),
    ("_sparse_semi_structured_apply_dense", (t(32, 32, dtype=H), t(128, dtype="uint8")), Work(0, 2176, 2048)),
    # contractions
    # bilinear's: 2*2*5*4*(3+1) flop, (6+60+8)*4 bytes read
    ("_trilinear", (t(2, 3), t(5, 3, 4), t(2, 4), [1, 3], [0], [1, 2], [2, 3], 1), Work(320, 296, 40)),
    # nothing is summed: 24 products of a and b, 24 with c; (24 + 24 + 24) * 4 bytes
    ("_trilinear", (t(2, 3, 4), t(2, 3, 4), t(2, 3, 4), [], [], [], [], 1), Work(48, 288, 96)),
    ("_trilinear", (t(2, 3), t(5, 3, 4), t(2, 4), UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN), UnknownArgument),
    ("bilinear", (t(2, 3), t(2, 4), t(5, 3, 4), t(5)), Work(320, 316, 40)),  # 2*2*5*4*(3+1); (6+8+60+5)*4; 10*4
    ("cdist", (t(3, 4), t(5, 4), 2.0), Work(180, 128, 60)),  # 15 pairs * 3*4; 32*4; 15*4
    ("_cdist_forward", (t(3, 4), t(5, 4), 1.0, None), Work(105, 128, 60)),  # 15 * (2*4-1)
    ("_cdist_backward", (t(3, 5), t(3, 4), t(5, 4), 2.0, t(3, 5)), Work(183, 248, 48)),
    # 15 pairs * (2*4 + 1) + 60 - 12 sums; (15+12+20+15)*4
    ("pdist _pdist_forward", (t(3, 4), 2.0), Work(36, 48, 12)),  # 3 pairs * 3*4
    ("kron", (t(2, 3), t(4)), Work(24, 40, 96)),
    ("tensordot", (t(2, 3, 4), t(4, 3, 5), (2, 1), (0, 1)), Work(240, 336, 40)),  # [2,5], K = 12; 84*4
    ("chain_matmul", ((t(10, 100), t(100, 5), t(5, 50)),), Work(15000, 7200, 2200)),
    # (A B) C: 2*10*5*100 + 2*10*50*5; (1500 + 300)*4; (50 + 500)*4
    # (A B) C: 24 + 40 multiply-adds, not 60 + 30; (6 + 12)*4 and 8*4, (8 + 20)*4 and 10*4
    ("chain_matmul linalg_multi_dot", ((t(2, 3), t(3, 4), t(4, 5)),), Work(128, 184, 72)),
    ("einsum", ("ij,jk->ik", (t(4, 5), t(5, 6))), Work(240, 200, 96)),
    ("einsum", ("i,j->ij", (t(4), t(6))), Work(24, 40, 96)),  # nothing summed: products
    ("einsum", ("ij->i", (t(4, 5),)), Work(16, 80, 16)),  # 20 - 4 sums
    ("einsum", ("ij->i", (t(4, 5, dtype=C64),)), Work(32, 160, 32)),  # 2 each
    ("einsum", ("ij->ji", (t(4, 5),)), Work(0, 0, 0)),  # a view
    ("einsum", ("ii->", (t(5, 5),)), Work(4, 20, 4)),  # the diagonal alone
    ("einsum", ("ijk,jl->il", (t(3, 4, 5), t(4, 6))), Work(192, 384, 120)),  # k summed before: 60 - 12; 2*3*4*6
    ("einsum", ("...ij,jk->...ik", (t(2, 3, 4, 5), t(5, 6))), Work(1440, 600, 576)),  # 6 times 240; (120+30)*4
    ("einsum", ("ij,jk,kl->il", (t(10, 100), t(100, 5), t(5, 50))), Work(15000, 7200, 2200)),  # left to right
    ("einsum", ("ij,jk,kl->il", (t(10, 100), t(100, 5), t(5, 50)), (1, 2, 0, 1)), Work(150000, 27000, 22000)),
    # B C first: 2*100*50*5 = 50000, (500+250)*4, 5000*4; then A(BC) 2*10*50*100 = 100000, (1000+5000)*4, 500*4
    # b stands twice, so the implied result has only i and k: b and j are summed, K = 15
    ("einsum", ("bij,bjk", (t(3, 4, 5), t(3, 5, 6))), Work(720, 600, 96)),
    # 3 pairs, each for both rows: 6 * (2*4 + 1), 24 - 12 sums; (3 + 12 + 3)*4
    ("_pdist_backward", (t(3), t(3, 4), 2.0, t(3)), Work(66, 72, 48)),
    ("linear_backward", (t(0, 5), t(0, 6), t(6, 5), (True, True, True)), Work(0, 120, 144)),  # no rows: no sums either
    # A w first: 2*5*6, (30+6)*4, 5*4; then 2*5, (5+5)*4, 1*4; the other order has 2*6 in the end
    ("linalg_multi_dot", ((t(5), t(5, 6), t(6)),), Work(70, 184, 24)),
]

BACKWARD: list[Row] = [  # FLOPs and bytes of all gradients together
    ("linear.backward mkldnn_linear.backward", (t(4, 5), t(6, 5), t(6)), (498, 712)),
    # two products 240 each, (24+30+20)*4 = 296 each; (4-1)*6 sums, (24+6)*4
    ("linear.backward", (t(4, 5, grad=False), t(6, 5)), (240, 296)),
    ("addmm.backward", (t(4, 6), t(4, 5), t(5, 6)), (480, 592)),  # self's gradient is dC itself
    ("addmm.backward", (t(4, 6), t(4, 5), t(5, 6), 2.0), (504, 784)),  # beta times dC: 24 products, 2*24*4
    ("baddbmm.backward", (t(4, 6), t(3, 4, 5), t(3, 5, 6)), (1488, 2160)),  # 2*720 + (72-24); 2*888 + (72+24)*4
    ("addbmm.backward", (t(4, 6), t(3, 4, 5), t(3, 5, 6)), (1440, 1392)),  # (24+90+60)*4 each
    ("matmul.backward linalg_matmul.backward", (t(2, 1, 4, 5), t(3, 5, 6)), (2880, 2192)),  # (144+90+40)*4 each
    ("matmul.backward", (t(5), t(5)), (10, 88)),  # 5 products each, (1+5+5)*4
    ("mv.backward", (t(4, 5), t(5)), (80, 232)),  # (4+5+20)*4 each
    ("addmv.backward", (t(4), t(4, 5), t(5)), (80, 232)),
    ("dot.backward vdot.backward linalg_vecdot.backward", (t(7), t(7)), (14, 120)),  # (1+7+7)*4 each
    ("inner.backward", (t(2, 5), t(4, 5)), (160, 304)),  # [2,4]: 2*8*5; (8+10+20)*4 each
    ("inner.backward", (t(5), t(5)), (10, 88)),
    ("outer.backward ger.backward", (t(4), t(6)), (96, 272)),  # 2*24 each; (24+6+4)*4
    ("addr.backward", (t(4, 6), t(4), t(6)), (96, 272)),
    ("tensordot.backward", (t(2, 3, 4), t(4, 3, 5), (2, 1), (0, 1)), (480, 752)),  # (10+60+24)*4 each
    ("bilinear.backward", (t(2, 3), t(2, 4), t(5, 3, 4), t(5)), (895, 1068)),
    # 300, 320, 30 + 240, (2-1)*5; each reads dy 10 and two of 6, 8, 60, writes the third:
    # (10 + 6 + 8 + 60)*4 = 336 each, and (10 + 5)*4
    ("einsum.backward", ("ij,jk->ik", (t(4, 5), t(5, 6))), (480, 592)),
    ("einsum.backward", ("i,j->ij", (t(4), t(6))), (96, 272)),  # each gradient sums over the other label
    ("einsum.backward", ("ij->i", (t(4, 5),)), (0, 0)),
]


test_worked_by_hand = worked(ROWS, BACKWARD)


def test_shapes_alone_give_the_flop_and_no_bytes() -> None:
    work = total(evaluate("addmm", (Tensor((6,)), Tensor((4, 5)), Tensor((5, 6)), UNKNOWN, UNKNOWN)))
    assert work.flop == 240 and math.isnan(work.nbytes)


@pytest.mark.parametrize("extra", [(), (1,), (1, 1), (1, 1, Tensor((4, 6), "float32"))])
def test_fewer_and_more_arguments_are_tolerated(extra: tuple[Any, ...]) -> None:
    assert evaluate("addmm", (t(6), t(4, 5), t(5, 6), *extra)) == Work(240, 224, 96)


def test_memory_that_comes_twice_is_read_once() -> None:
    a = t(4, 4, ident=1)
    assert evaluate("mm", (a, a)) == Work(128, 64, 64)


def test_an_expanded_operand_is_read_at_its_stored_size() -> None:
    assert evaluate("bmm", (Tensor((3, 4, 5), "float32", (0, 5, 1)), t(3, 5, 6))) == Work(720, 440, 288)  # 20+90


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("mm", (t(4, 5), t(4, 6))),
        ("bmm", (t(3, 4, 5), t(2, 5, 6))),
        ("linear", (t(4, 5), t(6, 4))),
        ("matmul", (t(), t(5))),
        ("einsum", ("ij,jk->ik", (t(4, 5),))),
    ],
)
def test_shapes_that_do_not_fit_are_refused(op: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(ShapeError):
        evaluate(op, args)


def test_foreign_arguments_are_a_model_error() -> None:
    with pytest.raises(ModelError):
        evaluate("mm", ("a", 3))


def test_families_name_the_matrix_products() -> None:
    assert {FAMILY[n] for n in ("mm", "linear", "einsum", "_scaled_mm", "_grouped_mm")} == {"gemm"}


size = st.integers(1, 9)


@given(m=size, m2=size, n=size, k=size)
def test_flop_adds_over_a_split_of_rows(m: int, m2: int, n: int, k: int) -> None:
    halves = [evaluate("mm", (t(rows, k), t(k, n))) for rows in (m, m2)]
    assert total(evaluate("mm", (t(m + m2, k), t(k, n)))).flop == sum(total(half).flop for half in halves)


@given(b=size, m=size, n=size, k=size)
def test_a_batched_product_is_matmul_is_einsum(b: int, m: int, n: int, k: int) -> None:
    args = (t(b, m, k), t(b, k, n))
    assert evaluate("bmm", args) == evaluate("matmul", args) == evaluate("einsum", ("bij,bjk->bik", args))


@given(m=size, n=size, k=size)
def test_a_backward_is_two_products(m: int, n: int, k: int) -> None:
    parts = evaluate("linear.backward", (t(m, k), t(n, k)))
    assert isinstance(parts, dict)
    assert parts["dgrad"] == evaluate("mm", (t(m, n), t(n, k)))
    assert parts["wgrad"] == evaluate("mm", (t(n, m), t(m, k)))


@pytest.mark.parametrize("op", ["mm", "mul", "sum"])
def test_what_a_sparse_tensor_has_no_model_for_is_unknown(op: str) -> None:
    sparse = t(4, 4, nonzero=3, index_bytes=24)
    with pytest.raises(ModelError, match="spars"):
        evaluate(op, (sparse, sparse) if op in ("mm", "mul") else (sparse,))


def test_an_error_of_a_chain_names_it() -> None:
    with pytest.raises(ShapeError, match="chain_matmul: expected"):
        evaluate("linalg_multi_dot", ((t(10, 100), t(5, 50), t(50, 4)),))
