"""An op of one's own, a + scale * b, as libraries have them: a Triton kernel on the GPU, NumPy on the CPU."""

import torch


@torch.library.custom_op("scaled_add::scaled_add", mutates_args=())
def scaled_add(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    if a.is_cuda:
        from scaled_add.kernel import launch

        return launch(a, b, scale)
    return torch.from_numpy(a.numpy() + scale * b.numpy())
