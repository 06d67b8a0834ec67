"""Matrix products: every dtype, layout and alignment that a library has other kernels for."""

import torch
import torch.nn.functional as F
from case import I, N, R, Run, both, custom, forward

FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp64")
LAYOUTS = {
    "nn": lambda a, b: a @ b,
    "nt": lambda a, b: a @ b.T,
    "tn": lambda a, b: a.T @ b,
    "tt": lambda a, b: a.T @ b.T,
}
SHAPES = {  # M, K, N
    "small": (128, 128, 128), "1024": (1024, 1024, 1024), "wide": (64, 4096, 4096), "row": (1, 4096, 4096),
    "few rows": (8, 4096, 11008), "deep": (128, 65536, 128), "align 4": (2052, 2052, 2052),
    "align 2": (2050, 2050, 2050), "tall": (65536, 256, 64), "tiny K": (4096, 8, 4096),
}  # fmt: skip


def add() -> None:
    _plain()
    _bytes()
    _batched()
    _linear()
    _narrow()
    _others()


def _plain() -> None:
    for dtype in FLOATS:
        for layout, op in LAYOUTS.items():
            forward(f"mm 4096 {layout}", op, N(4096, 4096), N(4096, 4096), dtype=dtype, check="f")
            forward(f"mm odd {layout}", op, N(1025, 1025), N(1025, 1025), dtype=dtype)
        for name, (m, k, n) in SHAPES.items():
            forward(f"mm {name}", torch.mm, N(m, k), N(k, n), dtype=dtype)


def _bytes() -> None:
    for dtype in ("bf16", "fp16", "tf32", "fp32"):
        forward("mm 64x16384x16384", torch.mm, N(64, 16384), N(16384, 16384), dtype=dtype, check="fb")
    forward("mv 32768", torch.mv, N(32768, 16384), N(16384), dtype="bf16", check="b")
    forward("mv 16384", torch.mv, N(16384, 16384), N(16384), dtype="fp32", check="b")
    forward("dot", torch.dot, N(1 << 28), N(1 << 28), dtype="fp32", check="b")
    forward("outer", torch.outer, N(16384), N(16384), dtype="fp32", check="b")
    forward("addmv", torch.addmv, N(16384), N(16384, 16384), N(16384), dtype="fp32", check="b")
    forward("addr", torch.addr, N(16384, 16384), N(16384), N(16384), dtype="fp32", check="b")


def _batched() -> None:
    for dtype in FLOATS:
        forward("bmm 64x512", torch.bmm, N(64, 512, 512), N(64, 512, 512), dtype=dtype, check="f")
        forward("bmm odd", torch.bmm, N(16, 201, 99), N(16, 99, 77), dtype=dtype)
        forward("baddbmm", torch.baddbmm, N(32, 512, 512), N(32, 512, 512), N(32, 512, 512), dtype=dtype, check="f")
        forward("bmm nt", lambda a, b: a @ b.mT, N(64, 512, 64), N(64, 512, 64), dtype=dtype)
    forward("bmm 4096x64x512", torch.bmm, N(4096, 64, 512), N(4096, 512, 64), dtype="bf16", check="fb")
    forward("einsum bij,bjk->bik", lambda a, b: torch.einsum("bij,bjk->bik", a, b), N(64, 512, 512), N(64, 512, 512),
            dtype="bf16", check="f")  # fmt: skip


def _linear() -> None:
    for dtype in ("fp32", "tf32", "fp16", "bf16"):
        both("linear bias", F.linear, R(16, 512, 1024), R(4096, 1024), R(4096), dtypes=[dtype], check="f")
        both("linear", F.linear, R(8192, 1024), R(1024, 1024), dtypes=[dtype], check="f")
    both("linear bias odd", F.linear, R(1000, 1001), R(999, 1001), R(999), dtypes=["bf16", "fp32"])
    forward("addmm", torch.addmm, N(2048, 2048), N(2048, 2048), N(2048, 2048), dtype="bf16", check="f")
    forward("linear and gelu", lambda b, x, w: torch._addmm_activation(b, x, w, use_gelu=True), N(4096), N(4096, 1024),
            N(1024, 4096), dtype="bf16", check="f")  # fmt: skip


def _narrow() -> None:
    """int8, fp8, sparse and grouped."""
    for m, k, n in ((4096, 4096, 4096), (512, 1024, 1024), (32, 4096, 4096), (4096, 64, 128)):
        custom(f"_int_mm {m}x{k}x{n} int8", _int_mm(m, k, n), "f" if m == 4096 else "")
    e4, e5 = torch.float8_e4m3fn, torch.float8_e5m2
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    for a, b, out, fast in ((e4, e4, bf16, True), (e4, e4, bf16, False), (e5, e4, fp16, True), (e4, e5, fp32, True),
                            (e4, e4, fp16, False)):  # fmt: skip
        custom(f"_scaled_mm 4096 {a} {b} {out} {'fast' if fast else 'slow'}", _scaled_mm(4096, a, b, out, fast), "f")
    custom("_scaled_mm 128 fp8", _scaled_mm(128, e4, e4, torch.bfloat16, True))
    custom("_scaled_mm 2064 fp8", _scaled_mm(2064, e4, e4, torch.bfloat16, True))
    custom("_scaled_mm by row fp8", _scaled_mm(4096, e4, e4, torch.bfloat16, True, rows=True), "f")
    custom("_grouped_mm bf16", _grouped, "f")
    custom("2:4 sparse mm fp16", _semi_structured(torch.float16))
    custom("2:4 sparse mm bf16", _semi_structured(torch.bfloat16))


def _int_mm(m: int, k: int, n: int):  # type: ignore[no-untyped-def]
    def build(device: str) -> Run:
        a = torch.randint(-128, 127, (m, k), device=device, dtype=torch.int8)
        b = torch.randint(-128, 127, (n, k), device=device, dtype=torch.int8).T
        return lambda: torch._int_mm(a, b)

    return build


def _scaled_mm(n: int, a_type: torch.dtype, b_type: torch.dtype, out: torch.dtype, fast: bool, rows: bool = False):  # type: ignore[no-untyped-def]
    def build(device: str) -> Run:
        a = torch.randn(n, n, device=device).to(a_type)
        b = torch.randn(n, n, device=device).to(b_type).T
        one = torch.ones((n, 1) if rows else (), device=device)
        two = torch.ones((1, n) if rows else (), device=device)
        return lambda: torch._scaled_mm(a, b, one, two, out_dtype=out, use_fast_accum=fast)

    return build


def _grouped(device: str) -> Run:
    a = torch.randn(8192, 1024, device=device, dtype=torch.bfloat16)
    b = torch.randn(8, 2048, 1024, device=device, dtype=torch.bfloat16).mT
    offsets = torch.arange(1024, 8193, 1024, device=device, dtype=torch.int32)
    return lambda: torch._grouped_mm(a, b, offsets)


def _semi_structured(dtype: torch.dtype):  # type: ignore[no-untyped-def]
    def build(device: str) -> Run:
        mask = torch.tensor([0, 0, 1, 1], device=device, dtype=torch.bool).tile(2048, 512)
        a = torch.sparse.to_sparse_semi_structured(torch.randn(2048, 2048, device=device, dtype=dtype) * mask)
        b = torch.randn(2048, 2048, device=device, dtype=dtype)
        return lambda: torch.mm(a, b)

    return build


def _others() -> None:
    forward("mm", torch.mm, N(1024, 1024), N(1024, 1024), dtype="c64")
    forward("mm", torch.mm, N(1024, 1024), N(1024, 1024), dtype="c128", check="f")
    forward("cdist", torch.cdist, N(2048, 64), N(2048, 64))
    forward("bilinear", F.bilinear, N(256, 64), N(256, 64), N(32, 64, 64))
    forward("multi_dot", lambda a, b, c: torch.linalg.multi_dot([a, b, c]), N(1024, 256), N(256, 2048), N(2048, 512),
            dtype="bf16", check="f")  # fmt: skip
    forward("addbmm", torch.addbmm, N(512, 512), N(16, 512, 512), N(16, 512, 512), dtype="bf16")
    forward("embedding bag", F.embedding_bag, I(100_000, 4096, 32), N(100_000, 128))
