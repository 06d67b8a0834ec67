"""Models of public libraries without and with a change: times of a step in turns, and the loop that pyprof run records.

python tests/device/libraries.py turns              a line of JSON per program: ms of a step
pyprof run --warmup 8 --steps 2 tests/device/libraries.py NAME
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pyprof

Step = Callable[[], Any]
DEVICE = "cuda"
NODES, RELATIONS = 1_000_000, 535


def training(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], amp: bool = True) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=amp):
            value = loss(model)
        value.backward()
        optimizer.step()

    return step


def kge(changed: bool) -> Step:
    """TransE of PyTorch Geometric on a graph as large as a part of Wikidata: dense and sparse gradients."""
    from torch_geometric.nn import TransE

    model = TransE(NODES, RELATIONS, hidden_channels=100, sparse=changed).to(DEVICE)
    adam = torch.optim.SparseAdam if changed else torch.optim.Adam
    optimizer = adam(model.parameters(), lr=0.01)
    head, tail = (torch.randint(0, NODES, (4096,), device=DEVICE) for _ in range(2))
    relation = torch.randint(0, RELATIONS, (4096,), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        model.loss(head, relation, tail).backward()
        optimizer.step()

    return step


def inference(model: nn.Module, changed: bool, *inputs: torch.Tensor) -> Step:
    """Under autocast with weights in fp32, or with all in bf16."""
    model = model.to(DEVICE).eval()
    if changed:
        model = model.to(torch.bfloat16)
        inputs = tuple(x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs)

    @torch.no_grad()
    def step() -> Any:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=not changed):
            return model(*inputs)

    return step


def vit_autocast(changed: bool) -> Step:
    import timm

    return inference(timm.create_model("vit_base_patch16_224"), changed, torch.randn(16, 3, 224, 224, device=DEVICE))


def whisper_autocast(changed: bool) -> Step:
    from transformers import WhisperConfig, WhisperModel

    layers = {"encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12, "decoder_attention_heads": 12}
    config = WhisperConfig(d_model=768, encoder_ffn_dim=3072, decoder_ffn_dim=3072, **layers)
    whisper = WhisperModel(config)

    class Transcriber(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whisper = whisper

        def forward(self, features: torch.Tensor, ids: torch.Tensor) -> Any:
            return self.whisper(input_features=features, decoder_input_ids=ids)

    features, ids = torch.randn(4, 80, 3000, device=DEVICE), torch.randint(0, 50_000, (4, 64), device=DEVICE)
    return inference(Transcriber(), changed, features, ids)


def emptied(changed: bool, inner: Step) -> Step:
    """A training step that gives its memory back to the driver, as is advised against out-of-memory errors."""

    def step() -> None:
        inner()
        if not changed:
            torch.cuda.empty_cache()

    return step


def emptied_distilbert(changed: bool) -> Step:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    model = DistilBertForSequenceClassification(DistilBertConfig()).to(DEVICE)
    ids, labels = torch.randint(0, 30_000, (32, 128), device=DEVICE), torch.randint(0, 2, (32,), device=DEVICE)
    return emptied(changed, training(model, lambda model: model(input_ids=ids, labels=labels).loss))


def emptied_resnet(changed: bool) -> Step:
    import torchvision

    model = torchvision.models.resnet50().to(DEVICE)
    x, labels = torch.randn(32, 3, 224, 224, device=DEVICE), torch.randint(0, 1000, (32,), device=DEVICE)
    return emptied(changed, training(model, lambda model: F.cross_entropy(model(x), labels)))


PROGRAMS = {
    program.__name__: program for program in (kge, vit_autocast, whisper_autocast, emptied_distilbert, emptied_resnet)
}


def in_turns(program: Callable[[bool], Step], turns: int = 7, steps: int = 10) -> dict[str, float]:
    both = [program(False), program(True)]
    times: list[list[float]] = [[], []]
    for step in both:
        for _ in range(8):
            step()
    for _ in range(turns):
        for step, found in zip(both, times, strict=True):
            step()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            found.append(1e3 * (time.perf_counter() - start) / steps)
    gains = sorted(before - after for before, after in zip(*times, strict=True))
    before, after = (statistics.median(found) for found in times)
    return {
        "before_ms": before,
        "after_ms": after,
        "gain": statistics.median(gains),
        "gain_low": gains[0],
        "gain_high": gains[-1],
    }


def main() -> None:
    if sys.argv[1] == "turns":
        for name, program in PROGRAMS.items():
            sys.stdout.write(json.dumps({"case": name, **in_turns(program)}) + "\n")
        return
    step = PROGRAMS[sys.argv[1]](False)
    for _ in range(14):
        step()
        pyprof.step()


if __name__ == "__main__":
    main()
