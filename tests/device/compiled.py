"""Records compiled programs whose kernels carry inductor's own count of bytes, to check ours against it on a GPU.

    python tests/device/compiled.py --out FOLDER [--only NAME ...]

With ``benchmark_kernel`` inductor writes ``kernel_num_gb`` and ``kernel_flop`` of each Triton kernel into the profile.
The folder receives one torch.profiler trace a program.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import gpt2
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import ProfilerActivity, profile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16


class Llama(nn.Module):
    """One block with what GPT-2 lacks: RMS norm, SwiGLU, rotated queries and keys."""

    def __init__(self, width: int = 2048, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 5504, bias=False), nn.Linear(width, 5504, bias=False)
        self.down = nn.Linear(5504, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (t * cos + torch.cat((-t[..., 64:], t[..., :64]), -1) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def gpt2_training() -> Callable[[], object]:
    config = gpt2.Config(layers=2, vocabulary=50304)
    model = gpt2.Gpt2(config).to(DEVICE)
    compiled = torch.compile(model)
    text = torch.randint(config.vocabulary, (4, config.context), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, BF16):
            loss = F.cross_entropy(compiled(text).flatten(0, 1), text.flatten())
        loss.backward()

    return step


def resnet50_training() -> Callable[[], object]:
    import torchvision

    model = torchvision.models.resnet50().to(DEVICE, memory_format=torch.channels_last)
    compiled = torch.compile(model)
    images = torch.randn(32, 3, 224, 224, device=DEVICE).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast(DEVICE, BF16):
            compiled(images).float().square().mean().backward()

    return step


def llama_inference() -> Callable[[], object]:
    model = Llama().to(DEVICE, BF16).eval().requires_grad_(False)
    compiled = torch.compile(model)
    x, cos, sin = (
        torch.randn(*shape, device=DEVICE, dtype=BF16) for shape in ((4, 2048, 2048), (2048, 128), (2048, 128))
    )
    return lambda: compiled(x, cos, sin)


def llama_training() -> Callable[[], object]:
    model = Llama().to(DEVICE, BF16)
    compiled = torch.compile(model)
    x, cos, sin = (
        torch.randn(*shape, device=DEVICE, dtype=BF16) for shape in ((4, 2048, 2048), (2048, 128), (2048, 128))
    )
    return lambda: compiled(x, cos, sin).sum().backward()


def templates() -> Callable[[], object]:
    """Products as Triton templates, with a prologue and an epilogue fused."""
    torch._inductor.config.max_autotune_gemm_backends = "TRITON"
    a, b = (torch.randn(2048, 2048, device=DEVICE, dtype=BF16) for _ in "ab")
    c, d = torch.randn(16, 512, 256, device=DEVICE, dtype=BF16), torch.randn(16, 256, 512, device=DEVICE, dtype=BF16)
    bias = torch.randn(2048, device=DEVICE, dtype=BF16)

    @torch.compile(mode="max-autotune-no-cudagraphs")
    def run() -> tuple[Tensor, ...]:
        return torch.mm(a, b).relu(), torch.addmm(bias, a, b) * 2, torch.bmm(c, d), F.gelu(F.linear(a, b, bias))

    return run


def flex() -> Callable[[], object]:
    q, k, v = (torch.randn(4, 16, 2048, 64, device=DEVICE, dtype=BF16, requires_grad=True) for _ in "qkv")
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 2048, 2048, device=DEVICE)
    compiled = torch.compile(flex_attention)

    def step() -> None:
        compiled(q, k, v, block_mask=causal).sum().backward()
        compiled(q, k, v).sum().backward()

    return step


def pointwise() -> Callable[[], object]:
    x, y = (torch.randn(64, 1024, 1024, device=DEVICE) for _ in "xy")
    i = torch.randint(64, (16,), device=DEVICE)
    image = torch.randn(64, 64, 128, 128, device=DEVICE)

    @torch.compile
    def run() -> tuple[Tensor, ...]:
        a, b = torch.sin(x).chunk(2, -1)
        fused = ((x * y + 1).relu(), F.silu(a) * b, (x - x.mean(0)).abs(), F.max_pool2d(image, 2).tanh())
        moved = (x[i].exp(), torch.cat([x, y], -1) * 2, x.transpose(1, 2).contiguous(), F.one_hot(i, 64))
        return *fused, *moved, x.softmax(-1), x.var(-1), x.sum()

    return run


PROGRAMS = (gpt2_training, llama_inference, llama_training, templates, flex, pointwise, resnet50_training)


def record(program: Callable[[], Callable[[], object]], out: Path) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    step = program()
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])]
    with profile(activities=activities, record_shapes=True) as recorded:
        step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    recorded.export_chrome_trace(str(out / f"{program.__name__}.json.gz"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch._inductor.config.benchmark_kernel = True
    for program in PROGRAMS:
        if not options.only or program.__name__ in options.only:
            try:
                record(program, options.out)
                sys.stdout.write(f"{program.__name__}: recorded\n")
            except Exception as error:  # noqa: BLE001 (a program that this torch cannot compile: the others go on)
                sys.stdout.write(f"{program.__name__}: {error!r:.500}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
