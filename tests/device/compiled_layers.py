"""Records eager and compiled steps of GPT-2 and of a Llama block under pyprof, to compare their layers and FLOPs.

    python tests/device/compiled_layers.py --out FOLDER [--only NAME ...]
    nsys profile -t cuda,nvtx -c cudaProfilerApi .. python tests/device/compiled_layers.py --nsys [--only NAME ...]

The first writes one trace per program and form (gpt2_training_eager.json.gz), the second one range of compiled steps.

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

import pyprof

DEVICE = programs.DEVICE
SMALL = DEVICE == "cpu"


def gpt2_training(compile_: Callable[..., Callable[..., torch.Tensor]]) -> Callable[[], object]:
    config = gpt2.Config(layers=2, vocabulary=50304) if not SMALL else gpt2.Config(2, 64, 4, 32, 500)
    model = gpt2.Gpt2(config).to(DEVICE)
    run = compile_(model)
    text = torch.randint(config.vocabulary, (4, config.context), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(run(text).flatten(0, 1), text.flatten())
        loss.backward()

    return step


def _llama(compile_: Callable[..., Callable[..., torch.Tensor]], training: bool) -> Callable[[], object]:
    width, length = (2048, 2048) if not SMALL else (256, 32)
    heads = width // 128
    model = programs.Llama(width, heads).to(DEVICE, torch.bfloat16)
    if not training:
        model.eval().requires_grad_(False)
    run = compile_(model)
    shapes = ((4, length, width), (length, 128), (length, 128))
    x, cos, sin = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for shape in shapes)
    return (lambda: run(x, cos, sin).sum().backward()) if training else (lambda: run(x, cos, sin))


def llama_training(compile_: Callable[..., Callable[..., torch.Tensor]]) -> Callable[[], object]:
    return _llama(compile_, training=True)


def llama_inference(compile_: Callable[..., Callable[..., torch.Tensor]]) -> Callable[[], object]:
    return _llama(compile_, training=False)


PROGRAMS = (gpt2_training, llama_training, llama_inference)
FORMS: dict[str, Callable[..., Callable[..., torch.Tensor]]] = {"eager": lambda model: model, "compiled": torch.compile}


def warm(program: Callable[..., Callable[[], object]], form: str) -> Callable[[], object]:
    torch.manual_seed(0)
    began = time.monotonic()
    step = program(FORMS[form])
    for _ in range(2):
        step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    sys.stdout.write(f"{program.__name__} {form}: two steps in {time.monotonic() - began:.1f} s\n")
    sys.stdout.flush()
    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--nsys", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    pyprof.init()
    chosen = [program for program in PROGRAMS if not options.only or program.__name__ in options.only]
    if options.nsys:
        steps = [warm(program, "compiled") for program in chosen]
        pyprof.start()
        for step in steps:
            step()
        pyprof.stop()
        return 0
    for program in chosen:
        for form in FORMS:
            step = warm(program, form)
            with pyprof.profile(str(options.out / f"{program.__name__}_{form}.json.gz"), force=True):
                step()
    return 0


if __name__ == "__main__":
    sys.exit(main())
