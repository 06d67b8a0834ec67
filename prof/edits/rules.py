"""All rules that propose edits; importing this module registers them."""

from pyprof.prof.edits import attention, from_findings, graphs, host_waits, loops, reduced_precision  # noqa: F401
from pyprof.prof.edits.edit import EDIT_RULES

__all__ = ["EDIT_RULES"]
