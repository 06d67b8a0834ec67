"""Whether PyTorch, or code that torch.compile makes, launched a kernel, as far as its name tells."""

import re

# PyTorch's namespaces (aten/src/ATen/native/cuda), the kernels that keep their short names in profilers' tables, and
# inductor's generated code (torch/_inductor/codegen/triton.py, 2.4 to 2.11). Other programs launch cuBLAS's, cuDNN's
# and CUB's kernels, too, so these tell nothing.
_PYTORCH = re.compile(
    r"\b(?:at|c10|caffe2|torch)::|(?:^|\W)(?:(?:un|vec\w{1,16}_|index_)?(?:rolled_)?elementwise_kernel\w*|reduce_kernel"
    r"|multi_tensor_apply_kernel)\b|^triton_(?:poi|per|red|tem|for|spl)_"
)


def is_pytorch(name: str) -> bool:
    """
    >>> is_pytorch("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()")
    True
    >>> is_pytorch("multi_tensor_apply_kernel"), is_pytorch("vectorized_elementwise_kernel")
    (True, True)
    >>> is_pytorch("cupy_multiply__float64_float64_float64"), is_pytorch("ampere_sgemm_128x64_tn")
    (False, False)
    """
    return _PYTORCH.search(name) is not None
