"""Print a .ncu-rep as one JSON object per launch: run by path, in a process of its own, by ``binary_report.py``.

    python report_process.py FILE.ncu-rep

It imports nothing of pyprof. Texts of metrics are printed where they are names; instances (per opcode, per NUMA node)
are left out.
"""

import importlib
import json
import math
import sys
from typing import Any


def main(path: str) -> int:
    """Print all launches of all ranges; end with 1 if the report cannot be read as a whole."""
    del sys.path[0]  # this folder, whose modules would stand before those of the same name elsewhere
    report = importlib.import_module("ncu_report").load_report(path)  # has no types
    for index in range(report.num_ranges()):
        actions = report.range_by_idx(index)
        for number in range(actions.num_actions()):
            sys.stdout.write(json.dumps(_launch(actions.action_by_idx(number))) + "\n")
    return 0


def _launch(action: Any) -> dict[str, Any]:
    bases = (action.NameBase_FUNCTION, action.NameBase_DEMANGLED, action.NameBase_MANGLED)
    metrics = ((name, action.metric_by_name(name)) for name in action.metric_names() if name)
    return {
        "names": [action.name(base) or "" for base in bases],
        "ranges": _ranges(action.nvtx_state()),
        "metrics": {name: (metric.unit() or "", _value(metric)) for name, metric in metrics if metric is not None},
    }


def _value(metric: Any) -> float | str | None:
    value = metric.value() if metric.has_value() else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (int, float, str)) else None


def _ranges(state: Any) -> list[tuple[str, str, bool]]:
    """(text, domain, whether it was pushed), pushed ones first."""
    if state is None:
        return []
    domains = [state.domain_by_id(number) for number in state.domains()]
    names = [(domain, "" if domain.name() == "<default domain>" else domain.name()) for domain in domains]
    pushed = [(text, name, True) for domain, name in names for text in domain.push_pop_ranges()]
    return pushed + [(text, name, False) for domain, name in names for text in domain.start_end_ranges()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
