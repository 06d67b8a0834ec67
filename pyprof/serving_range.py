"""The annotations that inference servers put around the forward pass of one batch, such as ``step[DECODE bs=32]``.

A server runs a batch of requests at a time. A request in its *context* phase (prefill) computes many tokens of its
prompt; one in its *generation* phase (decode) computes one, or a few with speculative decoding. An annotation says how
many of each the batch has. Detailed ones have sums over the requests, with q the tokens that a request computes in
this step and k all tokens that it attends to, these included: Σq, Σk, Σq² and Σq·k. So the work of attention follows.

=============  ====================================================================  ==================================
vLLM           ``execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086``  detailed_trace_annotation, vllm
               ``sqsq32sqsk55086)``; the first number is not used                    #37524
vLLM           ``execute_context_2(6144)_generation_3(3)``: requests (tokens)        the default since 2026
vLLM           ``execute_context_1(888_788544)_generation_0(0)``: the number after   seen in a trace of TraceLens; what
               the tokens is not used                                                it counts is not documented
vLLM           ``execute_new_3_cached_29``: requests scheduled for the first time,   vllm#22496
               and others, which may be in either phase
SGLang         ``step[EXTEND bs=2 toks=12]``, ``step[DECODE bs=32]``; other modes    sglang#23419, sglang#38630
SGLang         with ``c_sq= c_sk= c_sqsq= c_sqsk=``, and ``g_`` for generation       sglang#24911
ATOM           ``prefill[bs=2 tok=14721 ctx=[7803, 6918] sqsq= sqsk= sk=]``,         ROCm/ATOM#477
               ``decode[bs=117/128 tok=117 p=0 d=117 ...]``, of 128 padded
TensorRT-LLM   ``[Executor] _forward_step 71: 0 ctx reqs, 0 ctx tokens, 32 gen       py_executor.py; the tokens since
               reqs``                                                                TensorRT-LLM#14206
=============  ====================================================================  ==================================

Formats change between releases. A text that begins like one of these and has another form is reported, not guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"
SERVING_PHASES = (PREFILL, DECODE, MIXED)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Some requests of a batch, and sums over them; None: the annotation does not say."""

    requests: int | None = None
    tokens: int | None = None  # Σq, the tokens that are computed
    keys: int | None = None  # Σk, the tokens that are attended to
    squares: int | None = None  # Σq²
    products: int | None = None  # Σq·k

    def __add__(self, other: "Lengths") -> "Lengths":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Lengths(*(None if a is None or b is None else a + b for a, b in pairs))

    @property
    def causal_pairs(self) -> int | None:
        """The (query, key) pairs that a causal mask leaves: the i-th of q queries attends to k - q + i keys, in all
        q·k - q(q - 1) / 2. None where a sum is unknown."""
        if self.tokens is None or self.squares is None or self.products is None:
            return None
        return self.products - (self.squares - self.tokens) // 2

    @property
    def is_detailed(self) -> bool:
        """Whether the sums are known that attention's work follows from."""
        return self.causal_pairs is not None and self.keys is not None


NOBODY = Lengths(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ServingRange:
    """One batch: its requests in the context and in the generation phase, and both together."""

    engine: str
    context: Lengths
    generation: Lengths
    whole: Lengths
    phase: str  # one of SERVING_PHASES; empty: no request, or the annotation does not say

    @classmethod
    def of(cls, engine: str, context: Lengths, generation: Lengths) -> "ServingRange":
        prefills, decodes = bool(context.requests), bool(generation.requests)
        phase = (MIXED if decodes else PREFILL) if prefills else (DECODE if decodes else "")
        return cls(engine, context, generation, context + generation, phase)


_SUMS = r"\(sq(?P<{0}q>\d+)sk(?P<{0}k>\d+)sqsq(?P<{0}qq>\d+)sqsk(?P<{0}qk>\d+)\)"
_DETAILED = re.compile(
    rf"execute_\d+_context_(?P<c>\d+){_SUMS.format('c')}_generation_(?P<g>\d+){_SUMS.format('g')}", re.ASCII
)
_COUNTS = re.compile(
    r"execute_context_(?P<c>\d+)\((?P<cq>\d+)(?:_\d+)?\)_generation_(?P<g>\d+)\((?P<gq>\d+)(?:_\d+)?\)", re.ASCII
)
_NEW = re.compile(r"execute_new_(?P<new>\d+)_cached_(?P<cached>\d+)", re.ASCII)
_STEP = re.compile(r"step\[(?P<mode>[A-Za-z][A-Za-z0-9_]*)(?P<fields>(?: [a-z_]+=\d+)*)\]", re.ASCII)
_ATOM = re.compile(
    r"(?P<mode>prefill|decode)\[bs=(?P<bs>\d+)(?:/\d+)? tok=(?P<tok>\d+)(?: ctx=(?:\d+|\[[\d, ]*\](?:\.\.\.\+\d+)?))?"
    r"(?P<fields>(?: [a-z_]+=\d+)*)\]",
    re.ASCII,
)
_EXECUTOR = re.compile(
    r"\[Executor\] _forward_step(?: \d+)?: (?P<c>\d+) ctx reqs, (?:(?P<cq>\d+) ctx tokens, )?(?P<g>\d+) gen reqs",
    re.ASCII,
)
_FIELD = re.compile(r"([a-z_]+)=(\d+)", re.ASCII)
SERVING_TEXTS = ("execute_", "step[", "prefill[", "decode[", "[Executor] _forward_step")  # beginnings, all forms
_BEGINNINGS = re.compile(
    r"execute_(?:\d+_)?(?:context|generation|new|cached)_\d|step\[|(?:prefill|decode)\[|\[Executor\] _forward_step"
)
LONGEST = 400  # characters; the longest form has fewer than 300
DIGITS = re.compile(r"\d{16}")  # no sum over requests has as many digits


def is_like_serving(text: str) -> bool:
    """Whether a range's text begins as a server's annotation does, in a known form or not."""
    return _BEGINNINGS.match(text) is not None


@lru_cache(maxsize=4096)
def serving_range(text: str) -> ServingRange | None:
    """What a range's text says of a batch; None where it is no server's annotation, or one of another form.

    >>> serving_range("step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30]").whole.causal_pairs
    30
    """
    if not is_like_serving(text) or len(text) > LONGEST or DIGITS.search(text):
        return None
    for pattern, read in _FORMS:
        match = pattern.fullmatch(text)
        if match:
            return read({key: value for key, value in match.groupdict().items() if value is not None})
    return None


def _vllm(found: Mapping[str, str]) -> ServingRange:
    return ServingRange.of("vLLM", *(_lengths(found, name) for name in "cg"))


def _lengths(found: Mapping[str, str], name: str) -> Lengths:
    """The requests ``name``, their tokens and, where they are known, the other sums."""
    sums = [int(found[name + key]) if name + key in found else None for key in ("q", "k", "qq", "qk")]
    requests = int(found[name])
    return NOBODY if requests == 0 else Lengths(requests, *sums)


def _vllm_new(found: Mapping[str, str]) -> ServingRange:
    """Requests that were scheduled before go on with their prompt or generate: nothing says which."""
    new, cached = int(found["new"]), int(found["cached"])
    if cached == 0:
        return ServingRange.of("vLLM", Lengths(new) if new else NOBODY, NOBODY)
    unknown = Lengths()
    return ServingRange("vLLM", unknown, unknown, Lengths(new + cached), "")


def _executor(found: Mapping[str, str]) -> ServingRange:
    return ServingRange.of("TensorRT-LLM", *(_lengths(found, name) for name in "cg"))


_CONTEXT_MODES, _GENERATION_MODES = ("EXTEND", "PREFILL"), ("DECODE", "TARGET_VERIFY", "VERIFY")


def _sglang(found: Mapping[str, str]) -> ServingRange:
    """The mode says in which phase the requests are; MIXED has both. Of other modes, such as those of a draft model,
    only the sums are read."""
    mode, values = found["mode"].upper(), _fields(found["fields"])
    batch = values.get("bs")
    if mode == "MIXED":
        return _sglang_mixed(batch, values)
    if mode in _CONTEXT_MODES:
        return ServingRange.of("SGLang", _sglang_sums("c_", batch, values.get("toks"), values), NOBODY)
    if mode in _GENERATION_MODES:
        one_each = batch if mode == "DECODE" else None  # a draft model that tries several writes g_sq, or does not say
        return ServingRange.of("SGLang", NOBODY, _sglang_sums("g_", batch, one_each, values))
    if mode == "IDLE":
        return ServingRange.of("SGLang", NOBODY, NOBODY)
    whole = _sglang_sums("c_" if "c_sqsk" in values else "g_", batch, values.get("toks"), values)
    return ServingRange("SGLang", Lengths(), Lengths(), whole, "")


def _sglang_mixed(batch: int | None, values: Mapping[str, int]) -> ServingRange:
    if "c" in values and "g" in values:
        counts = (("c_", values["c"]), ("g_", values["g"]))
        return ServingRange.of("SGLang", *(_sglang_sums(name, count, None, values) for name, count in counts))
    if batch is not None and "ext" in values and "dec" in values:
        return ServingRange.of("SGLang", Lengths(batch - values["dec"], values["ext"]), Lengths(values["dec"]))
    return ServingRange("SGLang", Lengths(), Lengths(), Lengths(batch), MIXED)


def _sglang_sums(name: str, requests: int | None, tokens: int | None, values: Mapping[str, int]) -> Lengths:
    if requests == 0:
        return NOBODY
    squares = values.get(f"{name}sqsq", tokens if tokens == requests else None)  # one token each: Σq² is their number
    # The first release with sums leaves out Σq where the label before them says it.
    total = values.get(f"{name}sq", tokens)
    return Lengths(requests, total, values.get(f"{name}sk"), squares, values.get(f"{name}sqsk"))


def _atom(found: Mapping[str, str]) -> ServingRange:
    """The sums are of the whole batch. The label "decode" also stands for batches with ``p`` prompts."""
    values = _fields(found["fields"])
    batch, prompts = int(found["bs"]), values.get("p", 0)
    sums = (int(found["tok"]), values.get("sk"), values.get("sqsq"), values.get("sqsk"))
    whole = Lengths(batch, *sums) if batch else NOBODY
    if found["mode"] == "prefill" or not prompts:
        parts = (whole, NOBODY) if found["mode"] == "prefill" else (NOBODY, whole)
        return ServingRange.of("ATOM", *parts)
    phase = MIXED if batch > prompts else PREFILL
    return ServingRange("ATOM", Lengths(prompts), Lengths(max(batch - prompts, 0)), whole, phase)


def _fields(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _FIELD.findall(text)}


_FORMS = (
    (_DETAILED, _vllm),
    (_COUNTS, _vllm),
    (_NEW, _vllm_new),
    (_STEP, _sglang),
    (_ATOM, _atom),
    (_EXECUTOR, _executor),
)
