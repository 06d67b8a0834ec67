"""Prefill beside decode: tokens per second and time per output token of batches worked out by hand."""

import math

import numpy as np
import pytest

from pyprof.prof.limits.roofline import roofline
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.serving_sentences import serving_rows, serving_sentences
from pyprof.prof.timing.serving import serving_phases
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Coded, Table

PREFILL, DECODE = "execute_context_2(6000)_generation_0(0)", "execute_context_0(0)_generation_32(32)"
MS = 1_000_000


def captured(*batches, pid=7):
    """A table of one kernel of 1 ms per batch, (annotation, start of its step in ms), and its annotation."""
    texts = [text for text, _ in batches]
    start = np.array([at * MS for _, at in batches], np.int64)
    count = len(batches)
    table = Table(
        count,
        {
            "kShortName": Coded.of(["k"] * count),
            "kDuration": np.full(count, MS, np.int64),
            "kind": Coded.of(["kernel"] * count),
            "start": start,
            "step": np.arange(count),
            "markStart": start,
            "markEnd": np.append(start[1:], start[-1] + 10 * MS),
            "stepStart": start,
            "stepEnd": np.append(start[1:], start[-1] + 10 * MS),
            "serving": Coded.of(texts),
            "gpu": Coded.of(["NVIDIA H200"] * count),
            "pid": np.full(count, pid, np.int64),
        },
    )
    flops = np.full(count, NULL, np.int64)
    nbytes = np.full(count, 480_000_000, np.int64)  # 0.1 ms at an H200's 4.8 TB/s
    kinds = {name: Coded.of([text] * count) for name, text in (("tc", "-"), ("tcprec", ""), ("role", "main"))}
    return table, Annotation(flops, nbytes, **kinds, family=Coded.of(["pointwise"] * count), uncounted={})


def test_prefill_and_decode_have_their_own_figures():
    """6,000 tokens in 40 ms are 150,000 a second; 3 * 32 in 10 + 20 + 10 ms 2,400; one per request in 10 ms (median).

    Each batch moves 0.1 ms' worth of bytes: 3 * 0.1 of the 40 ms of decoding are 0.75%.
    """
    table, notes = captured((PREFILL, 0), (DECODE, 40), (DECODE, 50), (DECODE, 70))
    steps = {0: 40 * MS, 1: 10 * MS, 2: 20 * MS, 3: 10 * MS}
    prefill, decode = serving_phases(table, notes, roofline(table, notes), steps)
    assert (prefill.phase, prefill.steps, prefill.requests, prefill.context_tokens) == ("prefill", 1, 2, 6000)
    assert (prefill.tokens_per_s, prefill.output_tokens) == (pytest.approx(150_000), 0)
    assert math.isnan(prefill.output_token_ns)
    assert (decode.steps, decode.requests, decode.generation_tokens, decode.output_tokens) == (3, 32, 96, 96)
    assert (decode.tokens_per_s, decode.output_token_ns) == (pytest.approx(2400), 10 * MS)
    assert decode.mbu == pytest.approx(0.75) and math.isnan(decode.mfu)


def test_the_summary_says_so():
    found = summarise(*captured((PREFILL, 0), (DECODE, 40), (DECODE, 50), (DECODE, 70)))
    assert list(serving_sentences(found)) == [
        "Prefill: 1 step of 2 requests, 40.00 ms; 150,000 tokens of prompts per second.",
        "Decode: 3 steps of 32 requests, 10.00 ms (medians); 2,400 tokens per second; 10.00 ms per output token of a "
        "request (TPOT); the bytes that it needs take 0.8% of the time (MBU).",
        "Annotations of the server lack the sums over the requests' lengths, so attention over its cache is not "
        "counted: vLLM writes them with detailed_trace_annotation, SGLang with detailed_annotations.",
    ]
    assert serving_rows(found)[1] == (
        *("decode", "3", "32", "0", "96", "10.00 ms", "2,400", "10.00 ms", "unknown", "0.8%"),
    )


def test_tokens_that_are_not_on_record_give_no_rate():
    text = "[Executor] _forward_step 71: 0 ctx reqs, 0 ctx tokens, 32 gen reqs"
    (decode,) = summarise(*captured((text, 0), (text, 10))).serving
    assert (decode.generation_tokens, decode.output_tokens) == (None, None)
    assert math.isnan(decode.tokens_per_s) and math.isnan(decode.output_token_ns)


def test_speculative_tokens_are_computed_and_not_counted_as_output():
    """128 tokens of 32 requests per step of 10 ms: 12,800 computed a second; how many are kept is not on record."""
    text = "execute_128_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq128sk65536sqsq512sqsk262144)"
    found = summarise(*captured((text, 0), (text, 10)))
    assert (found.serving[0].output_tokens, found.serving[0].tokens_per_s) == (None, pytest.approx(12_800))
    assert found.serving[0].has_sums
    (sentence,) = serving_sentences(found)
    assert "several tokens per request in a step: how many of them are kept is not on record" in sentence


def test_ranks_that_share_a_batch_are_not_added():
    one, notes = captured((DECODE, 0), (DECODE, 10))
    both = Table.concat([one, captured((DECODE, 0), (DECODE, 10), pid=8)[0]])
    twice = notes.take(np.array([0, 1, 0, 1]))
    (decode,) = serving_phases(both, twice, roofline(both, twice), {0: 10 * MS, 1: 10 * MS})
    assert (decode.steps, decode.generation_tokens, decode.rows_ns) == (2, 64, 2 * MS)


def test_training_has_no_batches():
    assert summarise(*captured(("", 0), ("", 10))).serving == ()
