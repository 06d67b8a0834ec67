"""The step's gradients for the optimizer's ops whose lists the capture cut."""

import json

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

NODE = "torch::autograd::AccumulateGrad, op_id = {}, sizes = [{}], input_op_ids = [(1,0)]"


def test_each_step_has_its_own_gradients(tmp_path):
    ranges = [
        push(10, 20, NODE.format(1, "[300, 300]"), tid=2),
        push(20, 30, NODE.format(2, "[10]"), tid=2),
        push(40, 60, "Optimizer.step#SGD.step, op_id = 3"),
        push(42, 58, "aten::_foreach_add_, op_id = 4"),  # its list was cut
        push(70, 80, NODE.format(5, "[7]"), tid=2),
        push(90, 110, "Optimizer.step#SGD.step, op_id = 6"),
        push(92, 98, "aten::_foreach_add_, op_id = 7"),
        push(100, 108, "aten::_foreach_mul_, op_id = 8, sizes = [[7], []]"),  # told
    ]
    found = correlate(
        read(
            write(
                tmp_path / "net.sqlite",
                **{
                    KERNEL: [kernel(1000, 1), kernel(1010, 2), kernel(1020, 3)],
                    API: [call(45, 1), call(93, 2), call(103, 3)],
                    NVTX: ranges,
                },
            )
        )
    )
    grads = [json.loads(text) if text else None for text in found.coded("grads").texts()]
    assert grads == [[[300, 300], [10]], [[7]], None]
