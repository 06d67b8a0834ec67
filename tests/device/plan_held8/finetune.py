"""An encoder taught to sort sentences, in fp32: words cut between the steps, all sentences padded to one length."""

import math
import random
import string
import unicodedata
from collections.abc import Iterator

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, autocast, program, sized
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

LONGEST, CLASSES = sized(256, 24), 3
# Dropout at full size only: "sdpa" and "padding" draw other masks, and losses then agree only in their distribution.
DROP = sized(1, 0) / 10
PAD, UNKNOWN, CLS, SEP = range(4)


class Tokenizer:
    """Text without accents and control characters, its words cut into the longest pieces that are in a vocabulary."""

    def __init__(self, size: int) -> None:
        dice = random.Random(3)
        pieces = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
        while len(pieces) < size - 4:
            piece = "".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 6)))
            pieces.append("##" * dice.randint(0, 1) + piece)
        self.numbers = {piece: number for number, piece in enumerate(pieces, start=4)}

    @staticmethod
    def cleaned(text: str) -> str:
        kept = []
        for letter in text:
            if letter.isspace():
                kept.append(" ")
            elif not unicodedata.category(letter).startswith("C"):
                kept.append(letter)
        return "".join(kept)

    @staticmethod
    def plain(text: str) -> str:
        return "".join(letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) != "Mn")

    @staticmethod
    def words(text: str) -> list[str]:
        """Parts between spaces; marks of punctuation stand alone."""
        marked = (f" {letter} " if unicodedata.category(letter).startswith("P") else letter for letter in text)
        return "".join(marked).split()

    def pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self.numbers.get(("##" if start else "") + word[start:end])
                if number is not None:
                    break
            else:
                return [UNKNOWN]
            found.append(number)
            start = end
        return found

    def encoded(self, text: str) -> list[int]:
        found = [CLS]
        for word in self.words(self.plain(self.cleaned(text).lower())):
            found += self.pieces(word)
        return [*found[: LONGEST - 1], SEP]


class Sentences(Dataset[tuple[list[int], int]]):
    def __init__(self, count: int, tokenizer: Tokenizer) -> None:
        dice = random.Random(4)
        words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 7))) for _ in range(5000)]
        longest = LONGEST // 4
        self.texts = [" ".join(dice.choices(words, k=dice.randint(longest // 3, longest))) + "." for _ in range(count)]
        self.labels = [dice.randrange(CLASSES) for _ in range(count)]
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: int) -> tuple[list[int], int]:
        return self.tokenizer.encoded(self.texts[number]), self.labels[number]


class Collator:
    """Sentences of a batch, all padded to LONGEST, or to the longest one there is."""

    def __init__(self, dynamic: bool) -> None:
        self.dynamic = dynamic

    def __call__(self, examples: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor, Tensor]:
        length = LONGEST
        if self.dynamic:
            length = min(LONGEST, -(-max(len(tokens) for tokens, _ in examples) // 8) * 8)
        tokens = torch.tensor([tokens + [PAD] * (length - len(tokens)) for tokens, _ in examples])
        return tokens, (tokens != PAD).long(), torch.tensor([label for _, label in examples])


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.dropout, self.heads, self.on = nn.Linear(width, width), nn.Dropout(DROP), heads, on

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = (linear(x) for linear in (self.query, self.key, self.value))
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        if "sdpa" in self.on:
            dropped = DROP if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].bool(), dropout_p=dropped)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width // self.heads)
            scores = scores + (1.0 - mask[:, None, None, :].float()) * -10000.0
            y = torch.matmul(self.dropout(F.softmax(scores, dim=-1)), v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.attention, self.norm1 = SelfAttention(width, heads, on), nn.LayerNorm(width)
        self.wide, self.narrow, self.norm2 = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.LayerNorm(width),
        )
        self.dropout, self.fused = nn.Dropout(DROP), "gelu" in on

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        y = self.wide(x)
        y = F.gelu(y) if self.fused else y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0)))
        return self.norm2(x + self.dropout(self.narrow(y)))


class Encoder(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, on: Changes) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width, padding_idx=PAD), nn.Embedding(LONGEST, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(DROP)
        self.layers = nn.ModuleList([Layer(width, heads, on) for _ in range(layers)])
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, CLASSES)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.norm(self.words(tokens) + self.places(places)))
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


@program("gpu", "amp padding sdpa gelu workers item pinned")
def finetune(on: Changes) -> Step:
    words, batch = sized(30522, 400), sized(24, 4)
    with torch.device(DEVICE):
        model = Encoder(words, sized(768, 32), sized(12, 4), sized(12, 2), on).train()
    workers = 4 if "workers" in on else 0
    loader = DataLoader(
        Sentences(sized(12_000, 40), Tokenizer(words)),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        collate_fn=Collator("padding" in on),
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers else None,
        pin_memory="pinned" in on and ON_GPU,
        generator=torch.Generator().manual_seed(9),
    )
    adamw = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, lambda number: max(0.0, 1.0 - number / 100_000))
    right, seen = torch.zeros((), device=DEVICE), 0
    log: list[tuple[object, object]] = []

    def endless() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        while True:
            yield from loader

    batches = endless()

    def step() -> Tensor:
        nonlocal seen
        tokens, mask, labels = (part.to(DEVICE, non_blocking="pinned" in on) for part in next(batches))
        with autocast(on):
            logits = model(tokens, mask)
            loss = F.cross_entropy(logits.float(), labels)
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        seen += len(labels)
        right.add_((logits.argmax(dim=-1) == labels).sum())
        if "item" in on:
            log.append((loss.detach(), right / seen))
        else:
            log.append((loss.item(), right.item() / seen))
        return loss.detach()

    return step
