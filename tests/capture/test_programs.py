"""Real programs train to the same losses, bit for bit, with and without pyprof. Random weights, no downloads."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

# transformers and torch warn of their own plans; what is compared here are numbers.
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def losses(make: Callable[[], tuple[Any, Callable[[Any], Any]]]) -> list[float]:
    """Three steps of AdamW."""
    torch.manual_seed(0)
    model, loss_of = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    values = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def language_model(name: str, config: dict[str, Any]) -> Callable[[], tuple[Any, Callable[[Any], Any]]]:
    def make() -> tuple[Any, Callable[[Any], Any]]:
        transformers = pytest.importorskip("transformers", reason="needs transformers")
        base = name.removesuffix("LMHeadModel").removesuffix("ForCausalLM").removesuffix("ForMaskedLM")
        base = base.removesuffix("ForConditionalGeneration")
        model = getattr(transformers, name)(getattr(transformers, base + "Config")(**config))
        ids = torch.randint(5, 64, (2, 12))
        return model, lambda m: m(input_ids=ids, labels=ids).loss

    return make


def whisper() -> tuple[Any, Callable[[Any], Any]]:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.WhisperConfig(
        vocab_size=64,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    sound, ids = torch.randn(2, 8, 32), torch.randint(5, 64, (2, 6))
    return model, lambda m: m(input_features=sound, labels=ids).loss


class LstmLm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, 64)

    def forward(self, ids: Any) -> Any:
        return self.head(self.lstm(self.embed(ids))[0])


def lstm() -> tuple[Any, Callable[[Any], Any]]:
    ids = torch.randint(64, (2, 12))
    return LstmLm(), lambda m: F.cross_entropy(m(ids).flatten(0, 1), ids.flatten())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(4, 8, 3, 2, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x: Any) -> Any:
        skip = self.down(x)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], dim=1))


def unet() -> tuple[Any, Callable[[Any], Any]]:
    x = torch.randn(2, 1, 8, 8)
    return UNet(), lambda m: F.mse_loss(m(x), x)


def transformer() -> tuple[Any, Callable[[Any], Any]]:
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    x = torch.randn(2, 5, 16)
    return model, lambda m: m(x, x).square().mean()


PROGRAMS: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "gpt2": language_model("GPT2LMHeadModel", {"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "llama": language_model(
        "LlamaForCausalLM", {**SMALL, "intermediate_size": 32, "num_key_value_heads": 1, "pad_token_id": 0}
    ),
    "bert": language_model("BertForMaskedLM", {**SMALL, "intermediate_size": 32}),
    "t5": language_model(
        "T5ForConditionalGeneration",
        {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
        | {"decoder_start_token_id": 0},
    ),
    "whisper": whisper,
    "lstm": lstm,
    "unet": unet,
    "transformer": transformer,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_the_same(name: str) -> None:
    plain = losses(PROGRAMS[name])
    recorder = record(trace=True)
    assert losses(PROGRAMS[name]) == plain
    assert recorder.depth == 0
    from pyprof.capture import session

    assert session.current().mode.failures == []  # type: ignore[union-attr]
    assert len(recorder.markers) > 20 and all(marker.trace for marker in recorder.markers)


def test_gpt2_generates_the_same(recorder: Recorder) -> None:
    torch.manual_seed(0)
    model, _ = PROGRAMS["gpt2"]()
    model.eval()
    prompt = torch.tensor([[5, 6, 7]])
    import pyprof

    marked = model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
    pyprof.deinit()
    assert torch.equal(marked, model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0))
    assert "transformer.h.1.attn" in recorder.layers


RANK = """
import torch, torch.nn as nn, torch.distributed as dist, torch.distributed.fsdp as fsdp, pyprof
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
def train(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    if kind == "ddp":
        net = DDP(net)
    else:
        fsdp.fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        loss = net(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.all_reduce(loss.detach())
    return loss.item()
kinds = ["ddp"] + ["fsdp"] * hasattr(fsdp, "fully_shard")  # which is public since 2.6
pyprof.init(trace=True, sink="nvtx")
marked = [train(kind) for kind in kinds]
pyprof.deinit()
plain = [train(kind) for kind in kinds]
if dist.get_rank() == 0:
    print(marked, plain, sep="\\n")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_ranks_have_the_same_loss(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK, encoding="utf-8")
    marked, plain = two_ranks(tmp_path).splitlines()
    assert marked == plain != "[]"


def two_ranks(folder: Path, tries: int = 3) -> str:
    """What rank 0 prints. Gloo (2.13) aborts at the end of one process in ten, without pyprof as well: then again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "rank.py"],
            cwd=folder,
            env={**shared, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = [rank.communicate(timeout=240) for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    if tries > 1 and -signal.SIGABRT in codes:
        return two_ranks(folder, tries - 1)
    assert codes == [0, 0], results[0][1][-3000:] + results[1][1][-3000:]
    return results[0][0]
