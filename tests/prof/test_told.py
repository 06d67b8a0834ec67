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
