"""The annotations of inference servers: each form is a literal text of a release, with sums worked out by hand."""

import pytest

from pyprof.serving_range import NOBODY, Lengths, is_like_serving, serving_range

DECODE_32 = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"

# text, its source, context, generation, phase
SPLIT = [
    # AMD-AGI/TraceLens tests/traces: vLLM v1, gpt-oss-20b (vllm-project/vllm#37524, detailed_trace_annotation)
    (DECODE_32, NOBODY, Lengths(32, 32, 55086, 32, 55086), "decode"),
    # TraceLens's VLLM_annotation.md: two prompts of which 1,000 tokens were cached, and three requests that generate
    (
        "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)",
        Lengths(2, 6144, 7144, 20971520, 23019520),
        Lengths(3, 3, 6144, 3, 6144),
        "mixed",
    ),
    # the same page: speculative decoding, 4 tokens each
    (
        "execute_128_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq128sk65536sqsq512sqsk262144)",
        NOBODY,
        Lengths(32, 128, 65536, 512, 262144),
        "decode",
    ),
    # vllm/v1/worker/gpu_worker.py, annotate_profile (0.12 and later)
    ("execute_context_2(14721)_generation_0(0)", Lengths(2, 14721), NOBODY, "prefill"),
    ("execute_context_0(0)_generation_64(64)", NOBODY, Lengths(64, 64), "decode"),
    ("execute_context_2(6144)_generation_3(3)", Lengths(2, 6144), Lengths(3, 3), "mixed"),
    # AMD-AGI/TraceLens tests/traces/b200/eager_trace
    ("execute_context_1(888_788544)_generation_0(0)", Lengths(1, 888), NOBODY, "prefill"),
    # vllm-project/vllm#22496
    ("execute_new_3_cached_0", Lengths(3), NOBODY, "prefill"),
    # sgl-project/sglang#23419, model_runner.py
    ("step[EXTEND bs=2 toks=14721]", Lengths(2, 14721), NOBODY, "prefill"),
    ("step[DECODE bs=32]", NOBODY, Lengths(32, 32, None, 32), "decode"),
    ("step[TARGET_VERIFY bs=2]", NOBODY, Lengths(2), "decode"),
    ("step[MIXED bs=2]", Lengths(), Lengths(), "mixed"),
    ("step[mixed bs=5 ext=4096 dec=3]", Lengths(2, 4096), Lengths(3), "mixed"),  # the request's description
    # sgl-project/sglang#24911, its unit test: q and k of (8, 10) and (4, 10); of (1, 10) and (1, 20); of 4 and 3 each
    ("step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]", Lengths(2, 12, 20, 80, 120), NOBODY, "prefill"),
    ("step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30]", NOBODY, Lengths(2, 2, 30, 2, 30), "decode"),
    ("step[DECODE bs=2 g_sq=8 g_sqsq=32 g_sqsk=120 g_sk=30]", NOBODY, Lengths(2, 8, 30, 32, 120), "decode"),
    ("step[TARGET_VERIFY bs=2 g_sq=6 g_sqsq=18 g_sqsk=90 g_sk=30]", NOBODY, Lengths(2, 6, 30, 18, 90), "decode"),
    ("step[VERIFY bs=2 g_sq=6 g_sqsq=18 g_sqsk=90 g_sk=30]", NOBODY, Lengths(2, 6, 30, 18, 90), "decode"),  # #38630
    (
        "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
        Lengths(1, 5, 8, 25, 40),
        Lengths(1, 1, 12, 1, 12),
        "mixed",
    ),
    (
        "step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 c_sqsq=9 c_sqsk=9 g_sq=0 g_sk=0 g_sqsq=0 g_sqsk=0]",
        Lengths(1, 3, 3, 9, 9),
        NOBODY,
        "prefill",
    ),
    # AMD-AGI/TraceLens#818: the first release with sums leaves out Σq
    (
        "step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]",
        Lengths(1, 1025, 1025, 1050625, 1050625),
        NOBODY,
        "prefill",
    ),
    ("step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]", NOBODY, Lengths(64, 64, 100032, 64, 100032), "decode"),
    # ROCm/ATOM#477
    ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", Lengths(2, 14721), NOBODY, "prefill"),
    (
        "prefill[bs=1 tok=1024 ctx=1024 sqsq=1048576 sqsk=1048576 sk=1024]",
        Lengths(1, 1024, 1024, 1048576, 1048576),
        NOBODY,
        "prefill",
    ),
    (
        "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 sqsq=59768832 sqsk=59768832 sk=17408 tbo=1]",
        Lengths(6, 17408, 17408, 59768832, 59768832),
        NOBODY,
        "prefill",
    ),
    ("decode[bs=117/128 tok=117 d=117]", NOBODY, Lengths(117, 117), "decode"),
    (
        "decode[bs=32 tok=128 d=32 spec=3 sqsq=512 sqsk=262144 sk=65536]",
        NOBODY,
        Lengths(32, 128, 65536, 512, 262144),
        "decode",
    ),
    # NVIDIA/TensorRT-LLM py_executor.py, _forward_step: three releases
    ("[Executor] _forward_step: 1 ctx reqs, 0 gen reqs", Lengths(1), NOBODY, "prefill"),
    ("[Executor] _forward_step 12: 2 ctx reqs, 30 gen reqs", Lengths(2), Lengths(30), "mixed"),
    ("[Executor] _forward_step 71: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", NOBODY, Lengths(32), "decode"),
]


@pytest.mark.parametrize(("text", "context", "generation", "phase"), SPLIT)
def test_each_form_gives_the_requests_of_both_phases(text, context, generation, phase):
    found = serving_range(text)
    assert (found.context, found.generation, found.phase) == (context, generation, phase)


def test_a_batch_whose_sums_are_not_split_has_them_as_a_whole():
    """ROCm/ATOM#477: two prompts and 126 requests that generate, under the label "decode"."""
    found = serving_range("decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]")
    assert found.whole == Lengths(128, 384, 258048, 132612, 1114112)
    assert (found.context, found.generation, found.phase) == (Lengths(2), Lengths(126), "mixed")


def test_requests_that_were_scheduled_before_may_be_in_either_phase():
    found = serving_range("execute_new_3_cached_29")  # vllm-project/vllm#22496
    assert (found.whole, found.phase) == (Lengths(32), "")


def test_a_draft_models_step_has_sums_and_no_phase():
    """sgl-project/sglang#24911: q and k of (2, 12) and (3, 23)."""
    found = serving_range("step[DRAFT_EXTEND_V2 bs=2 c_sq=5 c_sqsq=13 c_sqsk=93 c_sk=35]")
    assert (found.whole, found.phase) == (Lengths(2, 5, 35, 13, 93), "")
    assert serving_range("step[DRAFT bs=2]").whole.requests == 2  # #38630


@pytest.mark.parametrize(
    "text",
    [
        "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)",
        "execute_context_0(0)_generation_0(0)",
        "step[IDLE bs=0]",
        "step[idle]",
    ],
)
def test_a_step_without_requests_has_no_phase(text):
    found = serving_range(text)
    assert (found.whole.requests, found.phase) == (0, "")


def test_the_causal_mask_leaves_the_pairs_that_a_count_one_by_one_gives():
    """q=8, k=10: the i-th query sees 3, 4, ..., 10 keys: 52. q=4, k=10: 7, 8, 9, 10: 34."""
    assert serving_range("step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]").whole.causal_pairs == 86
    assert serving_range(DECODE_32).whole.causal_pairs == 55086  # one query each: all keys
    assert serving_range("step[DECODE bs=32]").whole.causal_pairs is None


@pytest.mark.parametrize(
    "text",
    [
        "execute_context_2[6144]_generation_3[3]",
        "execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)",
        "step[DECODE smc-head-graph bs=2 toks=4]",  # a fork of SGLang
        "prefill[requests=2]",
        "[Executor] _forward_step 71: prefill",
        f"step[DECODE bs={'9' * 40}]",
    ],
)
def test_another_form_is_reported_and_not_guessed(text):
    assert is_like_serving(text)
    assert serving_range(text) is None


@pytest.mark.parametrize("text", ["aten::mm", "ProfilerStep#42", "", "execute_model", "prefill", "step 3", "decode"])
def test_other_ranges_are_no_annotations(text):
    assert not is_like_serving(text)
    assert serving_range(text) is None
