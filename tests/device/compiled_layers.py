"""Records eager and compiled steps of GPT-2 and of a Llama block under pyprof, to compare their layers and FLOPs.

    python tests/device/compiled_layers.py --out FOLDER [--only NAME ...] [--forms FORM ...]
    nsys profile -t cuda,nvtx -c cudaProfilerApi .. python tests/device/compiled_layers.py --nsys [--only NAME ...]
    TORCH_COMPILE_DEBUG=1 python tests/device/compiled_layers.py --plain --out FOLDER --only NAME --forms compiled

The first writes one trace per program and form (gpt2_training_eager.json.gz), the second one range of compiled steps.
The third records by torch.profiler alone, for `pyprof parse --inductor`.

pyprof is on from the beginning, so that it sees the compilation.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import compiled as programs
import gpt2
import torch
import torch.nn.functional as F
from compiled_models import gpt2_with_loss, llama_with_loss, products_with_loss
from torch import Tensor, nn

import pyprof

DEVICE = programs.DEVICE
SMALL = DEVICE == "cpu"
Compile = Callable[..., Callable[..., Tensor]]


def gpt2_training(compile_: Compile) -> Callable[[], object]:
    config = gpt2.Config(layers=2, vocabulary=50304) if not SMALL else gpt2.Config(2, 64, 4, 32, 500)
    model = gpt2.Gpt2(config).to(DEVICE)
    run = compile_(model)
    text = torch.randint(config.vocabulary, (4, config.context), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(run(text).flatten(0, 1), text.flatten())
        loss.backward()

    return step


def _llama(compile_: Compile, training: bool) -> Callable[[], object]:
    width, length = (2048, 2048) if not SMALL else (256, 32)
    heads = width // 128
    model = programs.Llama(width, heads).to(DEVICE, torch.bfloat16)
    if not training:
        model.eval().requires_grad_(False)
    run = compile_(model)
    shapes = ((4, length, width), (length, 128), (length, 128))
    x, cos, sin = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for shape in shapes)
    return (lambda: run(x, cos, sin).sum().backward()) if training else (lambda: run(x, cos, sin))


def llama_training(compile_: Compile) -> Callable[[], object]:
    return _llama(compile_, training=True)


def llama_inference(compile_: Compile) -> Callable[[], object]:
    return _llama(compile_, training=False)


def _with_loss(made: tuple[nn.Module, Tensor, Tensor], compile_: Compile) -> Callable[[], object]:
    model, ids, labels = made
    run = compile_(model)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = run(ids, labels)
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def gpt2_whole(compile_: Compile) -> Callable[[], object]:
    return _with_loss(gpt2_with_loss(), compile_)


def llama_whole(compile_: Compile) -> Callable[[], object]:
    return _with_loss(llama_with_loss(), compile_)


def products(compile_: Compile) -> Callable[[], object]:
    return _with_loss(products_with_loss(), compile_)


def user_kernels(compile_: Compile) -> Callable[[], object]:
    import user_kernels  # needs Triton

    model, x, y = user_kernels.user_kernels()
    run = compile_(model)
    return lambda: run(x, y)


def _templates(model: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._inductor.config.max_autotune_gemm_backends = "TRITON"
    return torch.compile(model, mode="max-autotune-no-cudagraphs")


PROGRAMS = (gpt2_training, llama_training, llama_inference, gpt2_whole, llama_whole, products, user_kernels)
FORMS: dict[str, Compile] = {
    "eager": lambda model: model,
    "compiled": torch.compile,
    "fullgraph": lambda model: torch.compile(model, fullgraph=True),
    "graphs": lambda model: torch.compile(model, mode="reduce-overhead"),
    "autotuned": lambda model: torch.compile(model, mode="max-autotune-no-cudagraphs"),
    "templates": _templates,
}


def warm(program: Callable[..., Callable[[], object]], form: str) -> Callable[[], object]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    began = time.monotonic()
    step = program(FORMS[form])
    for _ in range(1 if form == "graphs" else 2):  # the second step captures the graphs
        step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    sys.stdout.write(f"{program.__name__} {form}: warm after {time.monotonic() - began:.1f} s\n")
    sys.stdout.flush()
    return step


def plain(step: Callable[[], object], file: Path) -> None:
    with torch.profiler.profile(record_shapes=True) as recorded:
        step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    recorded.export_chrome_trace(str(file))


def record(step: Callable[[], object], form: str, file: Path) -> None:
    with pyprof.profile(str(file), force=True):
        for _ in range(3 if form == "graphs" else 1):
            step()
            pyprof.step()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--nsys", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--forms", nargs="*", default=["eager", "compiled"], choices=FORMS)
    options = parser.parse_args()
    if not options.plain:
        pyprof.init()
    chosen = [program for program in PROGRAMS if program.__name__ in options.only or not options.only]
    if options.nsys:
        steps = [warm(program, "compiled") for program in chosen]
        pyprof.start()
        for step in steps:
            step()
        pyprof.stop()
        return 0
    for program in chosen:
        for form in options.forms:
            step = warm(program, form)
            file = options.out / f"{program.__name__}_{form}.json.gz"
            if options.plain:
                plain(step, file)
            else:
                record(step, form, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
