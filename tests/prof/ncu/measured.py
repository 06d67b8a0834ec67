"""Reports of Nsight Compute for tests, made of literal values."""

import numpy as np

from pyprof.parse.ncu.report import Launch, Range, Report

LINEAR = "aten::linear, seq = {}, op_id = {}, sizes = [[8, 8], [8, 8]], input_op_ids = [(0,-1), (0,-1)]"


def ranges(*texts: str) -> tuple[Range, ...]:
    return tuple(Range(text) for text in texts)


def node(name: str, seq: int, *inner: str) -> tuple[Range, ...]:
    """The ranges around a backward kernel, as PyTorch 2.11 pushes them."""
    return ranges(engine(name, seq), f"{name}, seq = {seq}, op_id = {seq + 501}, sizes = [[8, 8]]", *inner)


def engine(name: str, seq: int) -> str:
    return f"autograd::engine::evaluate_function: {name}, op_id = {seq + 500}"


def launches(*kernels: tuple[str, tuple[Range, ...]], gpu: str = "NVIDIA H200", cc: str = "9.0") -> tuple[Launch, ...]:
    return tuple(
        Launch(number, name, process_id=7, device_name=gpu, cc=cc, ranges=around)
        for number, (name, around) in enumerate(kernels)
    )


def measured(kernels: tuple[Launch, ...], **metrics: list[float]) -> Report:
    """``metrics`` by a short word of SHORT, in base units; None and NaN are unknown."""
    columns = {SHORT.get(word, word): np.array(values, np.float64) for word, values in metrics.items()}
    return Report("net.csv", kernels, columns, {})


SHORT = {
    "time": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "write": "dram__bytes_write.sum",
    "l2_read": "lts__t_bytes_op_read.sum",
    "l2_write": "lts__t_bytes_op_write.sum",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "clock": "sm__cycles_elapsed.avg.per_second",
    "highest": "device__attribute_clock_rate",  # kHz
}
GEMM, ADD, CAST = "nvjet_sm90_tst_128x128_64x4_TNT", "at::native::vectorized_elementwise_kernel<CUDAFunctor_add>", "k"
# One step of a model: tokens -> blocks.0 (up, gelu) -> head -> cross_entropy, with clipping before AdamW's step.
STEP = launches(
    ("indexSelectLargeIndex", ranges("layer:Net", "layer:tokens", "aten::embedding, seq = 10, op_id = 1")),
    (GEMM, ranges("layer:Net", "layer:blocks.0.up", LINEAR.format(11, 2), "aten::addmm, seq = 11, op_id = 3")),
    ("GeluCUDAKernelImpl", ranges("layer:Net", "layer:blocks.0", "aten::gelu, seq = 12, op_id = 4")),
    (CAST, ranges("layer:Net", "layer:head", LINEAR.format(13, 5), "aten::to, seq = 13, op_id = 6")),
    (GEMM, ranges("layer:Net", "layer:head", LINEAR.format(13, 5), "aten::mm, seq = 14, op_id = 7")),
    ("cunn_SoftMaxForward", ranges("aten::cross_entropy_loss, seq = 15, op_id = 8", "aten::_log_softmax, op_id = 9")),
    ("cunn_SoftMaxBackward", node("LogSoftmaxBackward0", 15)),
    (GEMM, node("MmBackward0", 14, "aten::mm, op_id = 20, sizes = [[8, 8], [8, 8]]")),
    ("GeluBackwardCUDAKernelImpl", node("GeluBackward0", 12)),
    (GEMM, node("AddmmBackward0", 11, "aten::mm, op_id = 21, sizes = [[8, 8], [8, 8]]")),
    ("reduce_kernel", ranges(engine("AddmmBackward0", 11), "aten::sum, op_id = 22, sizes = [[8, 8]]")),
    (ADD, ranges(engine("torch::autograd::AccumulateGrad", 99), "torch::autograd::AccumulateGrad, op_id = 601")),
    ("embedding_backward_kernel", node("EmbeddingBackward0", 10)),
    ("multi_tensor_apply_kernel<LpNormFunctor>", ranges("aten::_foreach_norm, op_id = 30")),
    ("multi_tensor_apply_kernel<Adam>", ranges("Optimizer.step#AdamW.step", "aten::_fused_adamw_, op_id = 32")),
)  # fmt: skip
