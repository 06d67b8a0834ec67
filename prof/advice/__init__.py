"""What rules look for: findings, which name kernels, and the work of the GPU or CPU that a change removes.

A rule is a small pure function over a ``Run`` that yields ``Finding``s; each family of rules has its file. A rule that
lacks data abstains.
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
    layout,
    loss,
    mixed_precision,
    norm,
    optimizer,
)
from pyprof.prof.advice.card import RULES, Finding
from pyprof.prof.advice.run import Run

__all__ = ["RULES", "Finding", "Run"]
