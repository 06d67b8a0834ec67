"""Statements that exclude each other: of each pair at most one may stand in what pyprof says of a capture.

Each pair is two patterns, of which a text may match one. The texts are those of ``--summary``, ``--advise`` and
``plan`` of the same file.
"""

import re

LIMITS = {
    "gpu": r"The GPU limits the (?:step|capture)",
    "communication": r"Communication limits the (?:step|capture)",
    "data": r"Loading data limits the (?:step|capture)",
    "sync": r"Waiting for the GPU's results limits the (?:step|capture)",
    "host": r"The host limits the (?:step|capture)",
    "latency": r"Work that starts late although it was launched limits",
    "unknown": r"It is not known what limits",
}
INCOMPLETE = r"This is an incomplete capture"
BUSY = r"the GPU works for [\d.,]+ m?s of"
FOUND = r"What to change: [\d.,]+ to [\d.,]+ ms in \d+ change"
NOTHING = r"(?:no change was found that saves|There is no advice)"
# name -> the two patterns
PAIRS = {
    **{
        f"{one} and {other} limit the step": (LIMITS[one], LIMITS[other])
        for place, one in enumerate(LIMITS)
        for other in list(LIMITS)[place + 1 :]
    },
    "an incomplete capture whose GPU is busy": (INCOMPLETE, BUSY),
    "an incomplete capture whose changes are known": (INCOMPLETE, FOUND),
    "an incomplete capture with a limit": (INCOMPLETE, "|".join(LIMITS.values())),
    "changes and none": (FOUND, NOTHING),
    "workers wait and the program's own process loads": (
        r"waits for the DataLoader's worker processes",
        r"makes the batch in the program's own process",
    ),
    "workers exist and are proposed": (
        r"waits for the DataLoader's worker processes",
        r"Load data in the background: DataLoader\(num_workers=",
    ),
    "the host limits, and is not the limit": (LIMITS["host"], r"host[^.]*is not the limit"),
    "the GPU limits, and is not the limit": (LIMITS["gpu"], r"GPU[^.]*is not the limit"),
    "no fused attention, and fused attention": (
        r"No fused attention kernel runs",
        r"Attention runs in \d+ fused kernels",
    ),
    "all on tensor cores, and mixed precision": (r"100% of it on tensor cores: bf16", r"Use mixed precision"),
    "all in TF32, and TF32": (r"100% of it on tensor cores: tf32", r"\[tf32\]"),
    "inference, and gradients set to none": (r"Prefill: |Decode: ", r"\[zero_grad\]"),
    "inference, and training in FP8": (r"Prefill: |Decode: ", r"convert_to_float8_training"),
    "a server's step, and an optimizer": (r"Prefill: |Decode: ", r"\[optimizer\]"),
    "the profiler's cost measured and not": (
        r"without the profiler \((?:median|timed)",
        r"The profiler slows the host, so",
    ),
    "the step measured and estimated": (r"Measured without the profiler", r"an estimate"),
    "no steps and a step": (r"no steps are marked", r"(?:A|The) step takes"),
    "replayed and not": (r"[Oo]nly the GPU's work that each removes", r"in four of five cases"),
}


def contradictions(text: str) -> list[str]:
    """The names of the pairs of which a text has both."""
    return [name for name, (one, other) in PAIRS.items() if re.search(one, text) and re.search(other, text)]
