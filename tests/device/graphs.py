"""Programs that capture CUDA graphs before they are profiled, each with and without graphs, and a check of both.

    python tests/device/graphs.py run PROGRAM VARIANT [--file NET.json.gz] [--capture WHERE]  # one process, a GPU
    python tests/device/graphs.py cost                                                        # of recording
    python tests/device/graphs.py check FOLDER                                                # anywhere

``run`` without --file marks for nsys and calls pyprof.start() and stop(). ``check`` reads
PROGRAM-VARIANT-kineto.json.gz and -kineto_inside, and, of nsys, -nsys (without graphs), -nsys_inside, -nsys_before,
-nsys_apart and -nsys_apart-capture (.sqlite.gz).
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


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Program(NamedTuple):
    """A step to profile, and what captures its graphs (nothing in the variants without graphs)."""

    step: Callable[[], Any]
    capture: Callable[[], Any]


def _duration(call: Callable[[], Any]) -> str:
    import torch

    begin = time.perf_counter()
    call()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return f"{1e3 * (time.perf_counter() - begin):.1f}"


def decode(variant: str) -> Program:
    """A decode loop with a static KV cache, one graph, captured by torch.cuda.graph."""
    import torch
    from decode_model import Decoder

    model = Decoder().to(DEVICE, torch.bfloat16).eval()
    ids = torch.zeros(8, 1, dtype=torch.long, device=DEVICE)
    place = torch.zeros(1, dtype=torch.long, device=DEVICE)

    def step() -> None:
        with torch.no_grad():
            model(ids, place)

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


def run(name: str, variant: str, file: Path | None, capture: str, graphs: bool) -> None:
    """Warm up, capture, and profile STEPS steps, each ended by pyprof.step().

    ``capture``: "before" the profiled range, "inside" of it, or in a range of its own ("apart").
    """
    import contextlib

    import torch

    import pyprof

    torch._inductor.config.shape_padding = False  # decided by timing, in each process anew
    torch.manual_seed(0)
    recording = pyprof.profile(file, wait=True, force=True, graphs=graphs) if file else contextlib.nullcontext()
    if file is None:
        pyprof.init()
    with recording:
        program = PROGRAMS[name](variant)
        if capture != "before":
            pyprof.start()
        calls = [program.capture, *[program.step] * WARM]
        _say(f"{name} {variant}: calls before the profiled ones, ms: {' '.join(map(_duration, calls))}")
        if capture == "apart":
            pyprof.stop()
        if capture != "inside":
            pyprof.start()
        for _ in range(STEPS):
            pyprof.step()
            program.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        pyprof.step()
        pyprof.stop()


def decoding() -> Callable[[], Any]:
    """A decode step of 12 blocks."""
    import torch
    from decode_model import Decoder

    model = Decoder(layers=12).to(DEVICE, torch.bfloat16).eval()
    ids, place = (torch.zeros(*shape, dtype=torch.long, device=DEVICE) for shape in ((8, 1), (1,)))

    def step() -> None:
        with torch.no_grad():
            model(ids, place)

    return step


def training() -> Callable[[], Any]:
    """A training step of GPT-2 small on short sequences: forward, backward and SGD."""
    import gpt2
    import torch
    import torch.nn.functional as F

    config = gpt2.Config(context=64, vocabulary=512)
    model = gpt2.Gpt2(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    text = torch.randint(config.vocabulary, (2, config.context), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(text).flatten(0, 1).float(), text.flatten())
        loss.backward()
        optimizer.step()

    return step


def cost(times: int = 8) -> None:
    """The time of a graph's capture and of its replay: without pyprof, while it waits, and recorded."""
    import tempfile

    import pyprof

    for make in (decoding, training):
        step = make()
        for _ in range(3):
            step()
        _say(f"{make.__name__}:")
        _captures_and_replays("without pyprof", step, times)
        with tempfile.TemporaryDirectory() as folder:
            for what, graphs in (("pyprof waits, graphs=False", False), ("recorded", True)):
                with pyprof.profile(Path(folder, "net.json"), wait=True, force=True, graphs=graphs):
                    _captures_and_replays(what, step, times)
                    _timed("start()", pyprof.start)
                    step()
                    _timed("stop()", pyprof.stop)
                    begin = time.perf_counter()
                _say(f"  writing took {1e3 * (time.perf_counter() - begin):.0f} ms")
        _captures_and_replays("without pyprof, after it", step, times)


def _timed(what: str, call: Callable[[], Any]) -> None:
    begin = time.perf_counter()
    call()
    _say(f"  {what} took {1e3 * (time.perf_counter() - begin):.0f} ms")


def _captures_and_replays(what: str, step: Callable[[], Any], times: int, replays: int = 500) -> None:
    import torch

    found = []
    for _ in range(times):
        graph, begin = torch.cuda.CUDAGraph(), time.perf_counter()
        with torch.cuda.graph(graph):
            step()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - begin))
    launched, lasted = [], []
    for _ in range(5):
        begin = time.perf_counter()
        graph.replay()
        launched.append(1e6 * (time.perf_counter() - begin))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
        lasted.append(1e6 * (time.perf_counter() - begin) / replays)
    captures = " ".join(f"{one:.1f}" for one in found)
    _say(f"  {what}: captures {captures} ms; replays {min(lasted):.1f} us, a launch {min(launched):.1f} us")


COPIES = ("aten::copy_", "aten::_foreach_copy_")  # of inputs into a graph's own tensors; no part of the model's work


class Sums(NamedTuple):
    """What the check compares, of one step."""

    flop: int
    nbytes: int  # without copies
    unknown: int  # rows without known FLOPs or bytes
    copied: int  # bytes
    attributed: float  # share of the GPU time of graphs (without graphs: of all rows) that has an op
    in_layers: float  # the same, that has a layer


def sums(file: Path, step: int, graphs: list[Path]) -> Sums:
    import numpy as np

    from pyprof.prof.load import load_table
    from pyprof.prof.work.annotate import annotate
    from pyprof.table.columns import NULL
    from pyprof.table.graph_replays import launched_by_graphs

    table = load_table(str(file), graphs=[str(path) for path in graphs]).table
    work = annotate(table)
    here = table.ints("step") == step
    copies = np.isin(table.coded("aten").texts(), COPIES)
    by_graph = launched_by_graphs(table) & here
    chosen, time_ns = by_graph if by_graph.any() else here, table.ints("kDuration")

    def total(column: np.ndarray, rows: np.ndarray) -> int:
        return int(column[rows & (column != NULL)].sum())

    def share(key: str) -> float:
        known = np.array([text != "" for text in table.coded(key).texts()])
        return float(time_ns[chosen & known].sum() / time_ns[chosen].sum())

    nbytes = work.bytes
    unknown = int((here & ((work.flops == NULL) | (nbytes == NULL))).sum())
    return Sums(
        total(work.flops, here), total(nbytes, here & ~copies), unknown, total(nbytes, here & copies), share("op"),
        share("layer"),
    )  # fmt: skip


def check(folder: Path) -> int:
    """Compare each program's graphed files with the others; return 1 if FLOPs or bytes differ, or ops are missing."""
    failed = 0
    for name in PROGRAMS:
        plain = VARIANTS.get(name, ("eager", ""))[0]
        kinds = (("kineto", ".json.gz"), ("kineto_inside", ".json.gz"))
        for how, kind in (*kinds, *((f"nsys_{where}", ".sqlite.gz") for where in ("inside", "apart", "before"))):
            graphed, other = (
                folder / f"{name}-graphed-{how}{kind}",
                folder / f"{name}-{plain}-{how.split('_')[0]}{kind}",
            )
            capture = [folder / f"{name}-graphed-{how}-capture{kind}"] if how == "nsys_apart" else []
            if not graphed.exists() or not other.exists():
                _say(f"{name}, {how}: not recorded")
                continue
            with_graphs, without = sums(graphed, STEPS, capture), sums(other, STEPS, [])
            good = with_graphs[:2] == without[:2] and with_graphs.attributed > 0.99 and with_graphs.in_layers > 0.99
            failed += not good
            _say(f"{name}, {how}: {'good' if good else 'DIFFERS'}\n  {plain}: {without}\n  graphed: {with_graphs}")
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("program", choices=PROGRAMS)
    running.add_argument("variant", choices=("eager", "compiled", "graphed"))
    running.add_argument("--file", type=Path)
    running.add_argument("--no-graphs", action="store_true", help="do not record captures before the profiled range")
    running.add_argument("--capture", choices=("before", "inside", "apart"), default="before")
    actions.add_parser("cost")
    actions.add_parser("check").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.action == "check":
        return check(options.folder)
    if options.action == "cost":
        cost()
    else:
        run(options.program, options.variant, options.file, options.capture, not options.no_graphs)
    return 0


if __name__ == "__main__":
    import torch

    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
    sys.exit(main())
