"""What an op's surroundings tell of it: the user's call, the op around it, the collective's name."""

from __future__ import annotations

import json

from pyprof.prof.count import count_op

SIZES = json.dumps([[2, 4, 128, 64]] * 3 + [[]] * 7)
CALL = {
    "v": 1,
    "mod": "torch.nn.functional",
    "op": "scaled_dot_product_attention",
    "args": [
        *(
            {"name": n, "type": "tensor", "shape": [2, 4, 128, 64], "dtype": "bfloat16"}
            for n in ("query", "key", "value")
        ),
        {"name": "is_causal", "type": "bool", "value": True},
    ],
}


def counted(**told):
    columns = dict.fromkeys(("aten", "sizes", "dtypes", "strides", "args", "outs", "marker", "dir"), "")
    return count_op(**{**columns, **told})


def test_the_users_call_tells_whether_attention_is_causal():
    # NVTX: shapes alone. 2 * 4 heads, 128 * 129 / 2 = 8,256 pairs, 2 products of 2 * 64 FLOP a pair
    marker = json.dumps([json.dumps(CALL, separators=(",", ":"))])
    aten = "aten::_scaled_dot_product_flash_attention"
    assert counted(aten=aten, sizes=SIZES, marker=marker, dir="fprop").flop == 8 * 8256 * 2 * 128
    assert counted(aten=aten, sizes=SIZES, dir="fprop").flop is None
    whole = json.dumps(
        [json.dumps({**CALL, "args": CALL["args"][:3]}, separators=(",", ":"))]
    )  # the default: not causal
    assert counted(aten=aten, sizes=SIZES, marker=whole, dir="fprop").flop == 8 * 128 * 128 * 2 * 128


def test_a_convolutions_bias_gradient_is_a_sum_over_all_but_channels():
    # 32 * 16 * 10 * 10 elements to 16: E - O additions
    nodes = json.dumps(["ConvolutionBackward0", "aten::convolution_backward", "aten::sum"])
    sum_ = counted(aten="aten::sum", sizes="[[32, 16, 10, 10], [], [], []]", nodes=nodes)
    assert sum_.flop == 32 * 16 * 100 - 16
    assert counted(aten="aten::sum", sizes="[[32, 16, 10, 10], [], [], []]").flop is None


def test_the_op_around_a_collectives_record_names_it():
    # an all-reduce of 1,000 float32 reads and writes them; kernel names tell the type, here Kineto does
    sizes, dtypes = "[[[1000]],[],[],[],[]]", '[["float32"],"","","",""]'
    nodes = json.dumps(["c10d::allreduce_", "record_param_comms"])
    record = counted(aten="record_param_comms", sizes=sizes, dtypes=dtypes, args='["","","","0",""]', nodes=nodes)
    assert (record.flop, record.nbytes) == (0, 8000)
    assert counted(aten="record_param_comms", sizes=sizes, dtypes=dtypes, args='["","","","0",""]').nbytes is None


def test_a_loss_gradients_zeros_are_another_kernels():
    # 4 targets of 10 classes, float32: reads grad_output 4, target 4 * 8, total_weight 4; writes 4 of the 40 elements
    told = {"sizes": "[[],[4,10],[4],[],[],[],[]]", "dtypes": '["float32","float32","int64","","","","float32"]'}
    loss = counted(aten="aten::nll_loss_backward", args='["","","","","1","-100",""]', dir="bprop", **told)
    assert loss.nbytes == 4 + 4 * 8 + 4 + 4 * 4


def test_a_table_gradients_zeros_are_another_kernels():
    # 6 indices into 100 rows of 8 float32: reads 6 rows and 6 indices of 8 bytes, writes 6 rows
    told = {
        "sizes": "[[6,8],[6],[],[],[]]",
        "dtypes": '["float32","int64","","",""]',
        "args": '["","","100","-1","False"]',
    }
    table = counted(aten="aten::embedding_dense_backward", dir="bprop", **told)
    assert table.nbytes == 6 * 8 * 4 + 6 * 8 + 6 * 8 * 4


def test_a_pooling_gradients_zeros_are_another_kernels():
    # 2 x 2 pooling of 1 x 1 x 4 x 4 float32: reads 4 gradients and 4 positions of 8 bytes, writes 4 elements of 16
    told = {"sizes": "[[1,1,1,2,2],[1,1,1,4,4],[],[],[],[],[],[1,1,1,2,2]]"}
    types = '["float32","float32","","","","","","int64"]'
    pool = counted(aten="aten::max_pool3d_with_indices_backward", dtypes=types, dir="bprop", **told)
    assert pool.nbytes == 4 * 4 + 4 * 8 + 4 * 4


def test_max_pool2d_writes_its_whole_gradient() -> None:
    # the same pooling in 2 dimensions: its kernel writes all 16 elements, whatever filled them before
    told = {"sizes": "[[1,1,2,2],[1,1,4,4],[],[],[],[],[],[1,1,2,2]]"}
    types = '["float32","float32","","","","","","int64"]'
    pool = counted(aten="aten::max_pool2d_with_indices_backward", dtypes=types, dir="bprop", **told)
    assert pool.nbytes == 4 * 4 + 4 * 8 + 16 * 4
