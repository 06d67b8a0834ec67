"""Models that compute their own loss, as those of transformers do: ``model(ids, labels)``. For compiled_layers.py."""

import compiled as programs
import gpt2
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALL = programs.DEVICE == "cpu"


class Gpt2WithLoss(nn.Module):
    def __init__(self, config: gpt2.Config) -> None:
        super().__init__()
        self.transformer = gpt2.Gpt2(config)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.transformer(ids)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class LlamaWithLoss(nn.Module):
    """An embedding, blocks of Llama, and the loss."""

    def __init__(self, width: int, heads: int, vocabulary: int, layers: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(programs.Llama(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        half = self.tokens.embedding_dim // self.heads // 2
        rate = 1e4 ** (-torch.arange(half, device=ids.device) / half)
        angle = torch.outer(torch.arange(ids.shape[1], device=ids.device), torch.cat((rate, rate)))
        x = self.tokens(ids)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Products(nn.Module):
    """Two linear layers, for templates, each of which inductor measures in many forms."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(width, 4 * width), nn.Linear(4 * width, classes)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(F.gelu(self.up(x))), labels)


def products_with_loss() -> tuple[nn.Module, Tensor, Tensor]:
    rows, width = (4096, 1024) if not SMALL else (64, 32)
    x, labels = torch.randn(rows, width, device=programs.DEVICE), torch.randint(width, (rows,), device=programs.DEVICE)
    return Products(width, width).to(programs.DEVICE), x, labels


def gpt2_with_loss() -> tuple[nn.Module, Tensor, Tensor]:
    config = gpt2.Config(layers=2, vocabulary=50304) if not SMALL else gpt2.Config(2, 64, 4, 32, 500)
    return Gpt2WithLoss(config).to(programs.DEVICE), *_texts(config.vocabulary, config.context)


def llama_with_loss() -> tuple[nn.Module, Tensor, Tensor]:
    width, length, vocabulary = (2048, 2048, 32000) if not SMALL else (256, 32, 300)
    model = LlamaWithLoss(width, width // 128, vocabulary).to(programs.DEVICE, torch.bfloat16)
    return model, *_texts(vocabulary, length)


def _texts(vocabulary: int, length: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(vocabulary, (4, length + 1), device=programs.DEVICE)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
