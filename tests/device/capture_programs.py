"""Trains programs that need a GPU with and without pyprof: the same numbers must come out.

    python tests/device/capture_programs.py [NAME ...] [--skip NAME ...]

Each runs twice without pyprof, then under init(trace=True), then under init(trace=True, dispatch=True). Its values are
the losses and a sum over the trained parameters. A line a program says `identical`, `as close as unmarked runs`
(CUDA's own order of additions varies: two unmarked runs differ, too), or by how much it differs. Exit code 1 where the
marked run differs and unmarked runs do not, or raises.
"""

import argparse
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it

import gpt2
import resnet50
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

import pyprof
from pyprof.capture import session

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import lenet as lenet_example

STEPS = 3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Values = list[float]
PROGRAMS: dict[str, Callable[[], Values]] = {}
NO_EXACT = {"compile", "compile_reduce_overhead"}  # the exact mode runs them uncompiled: other kernels, other roundings


def program(run: Callable[[], Values]) -> Callable[[], Values]:
    PROGRAMS[run.__name__] = run
    return run


def train(model: nn.Module, loss_of: Callable[[], Tensor], steps: int = STEPS, rate: float = 1e-3) -> Values:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [*losses, checksum(model)]


def checksum(model: nn.Module) -> float:
    return sum(p.detach().double().sum().item() for p in model.parameters())


def bf16() -> Any:
    return torch.autocast(DEVICE, torch.bfloat16)


def mlp(width: int = 256) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width), nn.Dropout(0.1), nn.Linear(4 * width, width)
    ).to(DEVICE)


@program
def lenet() -> Values:
    model = lenet_example.LeNet().to(DEVICE)
    images = torch.randn(32, 1, 28, 28, device=DEVICE)
    labels = torch.randint(10, (32,), device=DEVICE)
    return train(model, lambda: F.cross_entropy(model(images), labels))


@program
def resnet50_bf16() -> Values:
    step = resnet50.training(DEVICE, batch=32 if DEVICE == "cuda" else 2)
    return [step().item() for _ in range(STEPS)]


@program
def gpt2_small_bf16() -> Values:
    config = gpt2.Config() if DEVICE == "cuda" else gpt2.Config(2, 32, 2, 16, 101)
    step = gpt2.training(DEVICE, config, batch=4)
    return [step().item() for _ in range(STEPS)]


@program
def gpt2_math_attention() -> Values:
    """GPT-2 again: the fused attentions' backward adds in an order that varies (on an H200), that of plain ops not."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return gpt2_small_bf16()


@program
def amp_fp16() -> Values:
    """GradScaler that starts too high, so that steps are skipped; clipped gradients."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**40, growth_interval=2)
    x, losses = torch.randn(64, 256, device=DEVICE), []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.float16):
            loss = F.mse_loss(model(x), x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return [*losses, scaler.get_scale(), checksum(model)]


@program
def cuda_graph() -> Values:
    """A whole training step captured once, replayed on new inputs."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    x = torch.randn(64, 256, device=DEVICE)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(STEPS):
        x.copy_(torch.randn_like(x))
        graph.replay()
        losses.append(loss.item())
    return [*losses, checksum(model)]


@program
def graphed_callables() -> Values:
    model = mlp()
    x = torch.randn(64, 256, device=DEVICE)
    graphed = torch.cuda.make_graphed_callables(model, (x.clone(),))
    return train(graphed, lambda: F.mse_loss(graphed(x), x))


def compiled(mode: str) -> Values:
    torch.compiler.reset()
    model = mlp()
    fast = torch.compile(model, mode=mode)
    x = torch.randn(64, 256, device=DEVICE)
    return train(model, lambda: F.mse_loss(fast(x), x), steps=5)


@program
def compile() -> Values:
    return compiled("default")


@program
def compile_reduce_overhead() -> Values:
    return compiled("reduce-overhead")


def attention(backend: str) -> Values:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (2, 8, 512, 64)
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y.float().square().mean().backward()
    return [y.double().sum().item(), *(t.grad.double().abs().sum().item() for t in (q, k, v))]


@program
def sdpa_flash() -> Values:
    return attention("FLASH_ATTENTION")


@program
def sdpa_efficient() -> Values:
    return attention("EFFICIENT_ATTENTION")


@program
def sdpa_cudnn() -> Values:
    return attention("CUDNN_ATTENTION")


@program
def sdpa_math() -> Values:
    return attention("MATH")


class Fp8Linear(torch.autograd.Function):
    """x @ w.T in fp8 with a scale a tensor; the gradients in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        (x8, sx), (w8, sw) = to_fp8(x), to_fp8(w)
        return torch._scaled_mm(x8, w8.t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grads[0] @ w, grads[0].t() @ x


def to_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.detach().abs().max().float() / 448.0  # the largest e4m3
    return (x / scale).to(torch.float8_e4m3fn), scale


@program
def fp8_scaled_mm() -> Values:
    w = nn.Linear(256, 512, bias=False, device=DEVICE, dtype=torch.bfloat16)
    x = torch.randn(128, 256, device=DEVICE, dtype=torch.bfloat16)
    return train(w, lambda: Fp8Linear.apply(x, w.weight).float().square().mean())


@program
def lstm() -> Values:
    model = nn.LSTM(64, 128, 2, batch_first=True, dropout=0.1).to(DEVICE)
    x = torch.randn(8, 20, 64, device=DEVICE)
    return train(model, lambda: model(x)[0].square().mean())


def checkpointed(reentrant: bool) -> Values:
    from torch.utils.checkpoint import checkpoint

    first, second = mlp(), mlp()
    x = torch.randn(64, 256, device=DEVICE, requires_grad=True)

    def loss_of() -> Tensor:
        with bf16():
            y = checkpoint(first, x, use_reentrant=reentrant)
            return F.mse_loss(checkpoint(second, y, use_reentrant=reentrant), x)

    return train(nn.ModuleList([first, second]), loss_of)


@program
def checkpoint_reentrant() -> Values:
    return checkpointed(True)


@program
def checkpoint_not_reentrant() -> Values:
    return checkpointed(False)


@program
def streams() -> Values:
    """Two streams, pinned copies that do not block, events."""
    x = torch.randn(256, 256, pin_memory=DEVICE == "cuda")
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        a = x.to(DEVICE, non_blocking=True) @ torch.ones(256, 256, device=DEVICE)
        done.record()
    b = torch.randn(256, 256, device=DEVICE).relu()
    done.wait()
    a.record_stream(torch.cuda.current_stream())
    return [(a + b).double().sum().item()]


@program
def data_loader() -> Values:
    """Workers forked after CUDA began, a thread that pins."""
    from torch.utils.data import DataLoader, TensorDataset

    model = mlp()
    data = TensorDataset(torch.randn(96, 256))
    loader = DataLoader(data, 32, num_workers=2, pin_memory=DEVICE == "cuda", shuffle=True)
    batches = iter(loader)

    def loss_of() -> Tensor:
        x = next(batches)[0].to(DEVICE, non_blocking=True)
        return F.mse_loss(model(x), x)

    return train(model, loss_of)


@program
def encoder_fast_path() -> Values:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(DEVICE).eval()
    with torch.inference_mode():
        return [model(torch.randn(4, 32, 128, device=DEVICE)).double().sum().item()]


def one_rank(wrap: Callable[[nn.Module], nn.Module]) -> Values:
    import torch.distributed as dist

    if not dist.is_initialized():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
        dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    model = wrap(mlp())
    x = torch.randn(64, 256, device=DEVICE)
    values = train(model, lambda: F.mse_loss(model(x), x))[:-1]
    dist.all_reduce(total := torch.tensor(values, device=DEVICE))
    return [*values, *total.tolist()]


@program
def ddp_one_rank() -> Values:
    return one_rank(nn.parallel.DistributedDataParallel)


@program
def fsdp_one_rank() -> Values:
    from torch.distributed.fsdp import fully_shard

    return one_rank(fully_shard)


def run(name: str) -> Values:
    torch.manual_seed(0)
    return PROGRAMS[name]()


def marked(name: str, dispatch: bool) -> Values:
    pyprof.init(trace=True, dispatch=dispatch, sink="nvtx")
    try:
        values = run(name)
        active = session.current()
        if active is None or active.mode is None or active.mode.failures:
            raise AssertionError(f"not described: {active and active.mode and active.mode.failures}")
        return values
    finally:
        pyprof.deinit()


def difference(a: Values, b: Values) -> float:
    """The largest relative one."""
    if len(a) != len(b):
        return math.inf
    return max(abs(x - y) / max(abs(x), abs(y), 1e-30) for x, y in zip(a, b, strict=True))


def verdict(plain: Values, again: Values, mine: Values) -> tuple[str, bool]:
    """Words, and whether they are good."""
    if mine == plain:
        return "identical", True
    noise, gap = difference(plain, again), difference(plain, mine)
    if noise > 0 and gap < max(20 * noise, 1e-6):
        return f"as close as unmarked runs: {gap:.1e} against {noise:.1e}", True
    return f"differs by {gap:.1e}, unmarked runs by {noise:.1e}", False


def compare(name: str) -> bool:
    began = time.monotonic()
    try:
        plain, again = run(name), run(name)
    except Exception as error:  # noqa: BLE001  (this machine cannot run it: nothing to compare)
        say(f"{name:26s} does not run without pyprof: {type(error).__name__}: {str(error)[:200]}")
        return True
    words, good = [], True
    for dispatch in (False, True):
        if dispatch and name in NO_EXACT:
            continue
        try:
            text, fine = verdict(plain, again, marked(name, dispatch))
        except Exception as error:  # noqa: BLE001  (what this script is to find)
            traceback.print_exc()
            text, fine = f"BROKE: {type(error).__name__}: {str(error)[:300]}", False
        words.append(f"{'dispatch' if dispatch else 'init'}: {text}")
        good = good and fine
    if run(name) != plain and plain == again:
        words.append("after deinit: DIFFERS")
        good = False
    say(f"{name:26s} {'ok ' if good else 'BAD'} {'; '.join(words)}  ({time.monotonic() - began:.1f} s)")
    return good


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, all where none is named")
    parser.add_argument("--skip", nargs="*", default=[], help="programs to leave out")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    names = [name for name in options.names or PROGRAMS if name not in options.skip]
    verdicts = [compare(name) for name in names]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
