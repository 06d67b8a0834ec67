"""Terms for the parts of a GPU: NVIDIA says tensor cores and SMs, AMD matrix cores and compute units (CUs).

Sentences are written in NVIDIA's terms, and pass through ``hardware_words`` before they are shown.
"""

import re
from collections.abc import Iterable

OF_AMD = (
    (re.compile(r"\b([Tt])ensor cores\b"), lambda found: f"{'M' if found[1] == 'T' else 'm'}atrix cores"),
    (re.compile(r"\bSM(?=s?\b)"), "CU"),
)


def hardware_words(text: str, gpus: Iterable[str]) -> str:
    """The text in the terms of the GPUs' maker, if all of them are AMD's.

    >>> hardware_words("bf16 tensor cores", ["AMD Instinct MI300X"]), hardware_words("tensor cores", [])
    ('bf16 matrix cores', 'tensor cores')
    >>> hardware_words("Tensor cores lost; 19 of 304 SMs", ["gfx942"])
    'Matrix cores lost; 19 of 304 CUs'
    """
    names = list(gpus)
    if not names or not all(name.startswith(("AMD", "gfx", "MI")) for name in names):
        return text
    for ours, theirs in OF_AMD:
        text = ours.sub(theirs, text)
    return text
