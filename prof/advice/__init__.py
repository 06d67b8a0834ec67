"""Advice: changes to the program, their places in the code, and the milliseconds per step that they save.

``advise(Run(table, annotation))`` runs every rule of ``RULES`` and ranks their findings. A rule is a small pure
function over a ``Run`` that yields ``Finding``s; each family of rules has its file. A rule that lacks data abstains.
"""

from pyprof.prof.advice import (  # noqa: F401 (each registers its rules)
    alignment,
    attention,
    communication,
    copies,
    cpu_data,
    cpu_ops,
    fusion,
    gradients,
    grid,
    inference,
    launch,
    layout,
    loss,
    mixed_precision,
    norm,
    optimizer,
)
from pyprof.prof.advice.card import RULES, Advice, Finding
from pyprof.prof.advice.rank import advise, together_ms
from pyprof.prof.advice.run import Run

__all__ = ["RULES", "Advice", "Finding", "Run", "advise", "together_ms"]
