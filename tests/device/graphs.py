"""Programs that capture CUDA graphs before they are profiled, each with and without graphs, and a check of both.

    python tests/device/graphs.py run PROGRAM VARIANT [--file NET.json.gz] [--inside]   # one process, on a GPU
    python tests/device/graphs.py cost                                                  # what recording costs
    python tests/device/graphs.py check FOLDER                                          # anywhere

``run`` without --file marks for nsys and calls pyprof.start() and stop(). ``--inside``: the graph is captured within the
range that is profiled, otherwise before it. A file of ``check`` is called PROGRAM-VARIANT-HOW.json.gz or .sqlite.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 2
WARM = 4  # steps before the profiled range; torch.compile captures graphs in the second call


class Program(NamedTuple):
    """A step to profile, and what captures its graphs (nothing in the variants without graphs)."""

    step: Callable[[], Any]
    capture: Callable[[], Any]


def decode(variant: str) -> Program:
    """A decode loop with a static KV cache, one graph, captured by torch.cuda.graph."""
    import torch
    from decode_model import Decoder

    model = Decoder().to(DEVICE, torch.bfloat16).eval()
    ids = torch.zeros(8, 1, dtype=torch.long, device=DEVICE)
    place = torch.zeros(1, dtype=torch.long, device=DEVICE)

    def step() -> None:
        with torch.no_grad():
            ids.copy_(model(ids, place).argmax(-1))
            place.add_(1)

    if variant == "eager":
        return Program(step, step)
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()

    return Program(graph.replay, capture)


def generate(variant: str) -> Program:
    """transformers' generate with a static cache. Without graphs: the same, compiled in mode "default"."""
    import torch
    from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1408, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=256, use_cache=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
    text = torch.arange(4 * 32, device=DEVICE).view(4, 32)
    mode = {"graphed": "reduce-overhead", "compiled": "default"}.get(variant)
    how = {"compile_config": CompileConfig(mode=mode)} if mode else {"disable_compile": True}

    def step() -> None:
        model.generate(
            text, attention_mask=torch.ones_like(text), max_new_tokens=6, min_new_tokens=6, do_sample=False,
            cache_implementation="static", pad_token_id=0, **how,
        )  # fmt: skip

    return Program(step, step)


def reduce_overhead(variant: str) -> Program:
    """Training with torch.compile(mode="reduce-overhead"), whose graphs form trees: forward, backward."""
    import gpt2
    import torch
    import torch.nn.functional as F

    config = gpt2.Config(layers=2, width=256, heads=4, context=256, vocabulary=8192)
    model = gpt2.Gpt2(config).to(DEVICE)
    mode = {"graphed": "reduce-overhead", "compiled": "default"}.get(variant)
    run = torch.compile(model, mode=mode) if mode else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    text = torch.randint(config.vocabulary, (4, config.context), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(run(text).flatten(0, 1), text.flatten())
        loss.backward()
        optimizer.step()

    return Program(step, step)


def callables(variant: str) -> Program:
    """Training with a part of the model in torch.cuda.make_graphed_callables: one graph forward, one backward."""
    import gpt2
    import torch

    config = gpt2.Config(layers=2, width=256, heads=4, context=256)
    body = torch.nn.Sequential(gpt2.Block(config), gpt2.Block(config)).to(DEVICE)
    head = torch.nn.Linear(256, 16).to(DEVICE)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3)
    x = torch.randn(4, 256, 256, device=DEVICE, requires_grad=True)
    net = [body]

    def step() -> None:
        optimizer.zero_grad()
        head(net[0](x)).square().mean().backward()
        optimizer.step()

    def capture() -> None:
        if variant == "graphed":
            net[0] = torch.cuda.make_graphed_callables(body, (x,))
        step()

    return Program(step, capture)


PROGRAMS = {program.__name__: program for program in (decode, generate, reduce_overhead, callables)}
VARIANTS = {"generate": ("compiled", "graphed"), "reduce_overhead": ("compiled", "graphed")}


def run(name: str, variant: str, file: Path | None, inside: bool) -> None:
    """Warm up, capture, and profile STEPS steps, each ended by pyprof.step()."""
    import contextlib

    import torch

    import pyprof

    torch.manual_seed(0)
    recording = pyprof.profile(file, wait=True, graphs=True, force=True) if file else contextlib.nullcontext()
    if file is None:
        pyprof.init()
    with recording:
        program = PROGRAMS[name](variant)
        if inside:
            pyprof.start()
        program.capture()
        for _ in range(WARM):
            program.step()
        if not inside:
            pyprof.start()
        for _ in range(STEPS):
            pyprof.step()
            program.step()
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        pyprof.step()
        pyprof.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("program", choices=PROGRAMS)
    running.add_argument("variant", choices=("eager", "compiled", "graphed"))
    running.add_argument("--file", type=Path)
    running.add_argument("--inside", action="store_true")
    options = parser.parse_args()
    run(options.program, options.variant, options.file, options.inside)
    return 0


if __name__ == "__main__":
    import torch

    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
    sys.exit(main())
