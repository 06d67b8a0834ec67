"""The rooms of the code, and which room may import which: the table below is the whole truth."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

MOST = 25  # modules per room; prof/ops has one file per family of ops and is exempt

# Every module stands in the room that its folder names. The top of pyprof/ has two: the ground, on which all others
# stand, and the commands and public names. Each room may import the rooms in its row, and itself, and nothing else.
# Rooms come after all that they import, so that no import runs in a circle.
GROUND = frozenset(
    "_version captured_record clock_reader clock_sampler compiled_record cpu_record cuda_graph_nodes cupti_teardown "
    "dtypes errors files gc_pause interruption marker memory_record nvml packed_weights quantities range_pieces "
    "serving_range source_path step_timer text thread_record".split()
)
ALLOWED = {
    "ground": "",
    "pyprof/command": "ground",
    "pyprof/table": "ground",
    "pyprof/provenance": "ground",
    "pyprof/capture": "ground pyprof/command pyprof/provenance",
    # of the children of a run; what Python imports at their start imports two modules, by name
    "pyprof/processes": "ground pyprof/capture",
    "pyprof/processes/on_path": "pyprof/provenance pyprof/processes",
    # parse/ imports nothing of prof/: a capture becomes a kernel table whatever is made of it
    "parse/attribute": "ground pyprof/command pyprof/table",
    "parse/graphs": "ground pyprof/table parse/attribute",
    "parse/tables": "ground pyprof/table parse/attribute parse/graphs",
    "parse/databases": "ground pyprof/table",
    "parse/formats": "ground pyprof/table parse/attribute parse/databases",
    "parse/nsys": "ground pyprof/table parse/attribute parse/tables parse/databases parse/formats",
    "parse/kineto": "ground pyprof/table parse/attribute parse/formats",
    "parse/ncu": "ground",
    "parse/inductor": "ground",
    "parse": "ground pyprof/command pyprof/table parse/attribute parse/graphs parse/tables parse/databases "
    "parse/formats parse/nsys parse/kineto parse/inductor",
    "parse/stats": "ground pyprof/command pyprof/table parse parse/attribute parse/databases parse/formats parse/nsys "
    "parse/kineto",
    "parse/scrub": "ground pyprof/command pyprof/table parse parse/databases parse/formats parse/nsys parse/kineto "
    "parse/ncu",
    # prof/: the algorithm's work, then the hardware, then the time, then what is said of them
    "prof/ops": "ground",
    "prof/kernels": "ground prof/ops",
    "prof/work/helpers": "ground prof/ops prof/kernels",
    "prof/work": "ground pyprof/table prof/ops prof/kernels prof/work/helpers",
    "prof/memory": "pyprof/command pyprof/table ground prof/work",
    "prof/counters": "ground pyprof/table parse/formats parse/ncu",
    "prof/limits": "ground pyprof/table prof/ops prof/kernels prof/work",
    "prof/timing": "ground pyprof/command pyprof/table prof/ops prof/work prof/limits",
    # a step's time and what limits it, which all outputs say first
    "prof/step": "pyprof/command pyprof/table prof/work prof/timing",
    # the replay of a run, and the command that shows it
    "prof/replay": "ground pyprof/command pyprof/table prof/kernels prof/work prof/limits prof/timing",
    "prof/changes/effect": "ground pyprof/table prof/kernels prof/work prof/limits prof/timing prof/replay",
    "prof/changes/rules/kernels": "ground pyprof/table prof/work prof/limits prof/timing prof/changes/effect",
    "prof/changes/rules/products": "ground pyprof/table prof/kernels prof/changes/effect prof/changes/rules/kernels",
    "prof/changes/rules/host": "ground pyprof/table prof/limits prof/timing prof/changes/effect "
    "prof/changes/rules/products",
    "prof/changes/rules/repeats": "ground pyprof/table prof/timing prof/changes/effect prof/changes/rules/kernels "
    "prof/changes/rules/host",
    "prof/changes/rules": "ground pyprof/table prof/changes/effect prof/changes/rules/kernels prof/changes/rules/host",
    # the one list of changes, which all outputs show
    "prof/changes": "ground pyprof/command pyprof/table prof/work prof/limits prof/timing prof/step prof/replay "
    "prof/changes/effect prof/changes/rules",
    "pyprof/rerun": "ground pyprof/table prof/ops prof/work",
    "prof/changes/measured": "ground pyprof/command pyprof/table pyprof/rerun prof/ops prof/work prof/changes/effect "
    "prof/changes/rules/kernels prof/changes/rules/products",
    "prof/ranks": "ground pyprof/command pyprof/table prof/work prof/timing prof/replay",
    "prof/summary": "ground pyprof/command pyprof/table parse/attribute prof/memory prof/ops prof/kernels prof/work "
    "prof/limits prof/timing prof/step prof/changes prof/ranks",
    "prof/table": "ground pyprof/command pyprof/table parse/formats prof/work prof/counters prof/limits prof/timing "
    "prof/changes/effect prof/changes",
    "prof/job": "ground pyprof/command pyprof/table parse prof/work prof/replay prof/ranks",
    # the outputs, and the commands at the top of prof/
    "prof": "ground pyprof/command pyprof/table parse prof/changes/measured prof/job prof/memory prof/ops prof/kernels "
    "prof/work/helpers prof/work prof/counters prof/limits prof/timing prof/changes/effect prof/changes "
    "prof/summary prof/table",
    "prof/plot": "ground pyprof/command pyprof/table prof prof/kernels prof/work prof/limits prof/timing prof/table",
    "prof/perfetto": "ground pyprof/command pyprof/table parse/attribute prof prof/memory prof/work "
    "prof/limits prof/timing prof/table",
    "prof/planning": "ground pyprof/command pyprof/table prof prof/work prof/limits prof/step prof/replay "
    "prof/changes/effect prof/changes/rules prof/changes prof/changes/measured",
    "prof/diff": "ground pyprof/command pyprof/table parse prof prof/job prof/work prof/limits prof/timing "
    "prof/ranks prof/summary prof/table",
    "prof/report": "ground pyprof/command pyprof/table parse/attribute prof prof/memory prof/kernels prof/work "
    "prof/ranks prof/limits prof/timing prof/changes prof/summary prof/table",
    "prof/ncu": "ground pyprof/command pyprof/table parse/attribute parse/formats parse/ncu prof/ops prof/work "
    "prof/limits prof/summary",
    "prof/notebook": "ground pyprof/command pyprof/table prof prof/work prof/limits prof/timing prof/step "
    "prof/changes/effect prof/changes prof/planning prof/summary prof/table prof/plot prof/report",
    "pyprof/ncu": "ground pyprof/command pyprof/capture prof/ncu",
    "pyprof/variants": "ground pyprof/command pyprof/capture prof/changes/effect prof/changes/rules prof/changes "
    "prof/planning",
    "pyprof/counting": "ground pyprof/capture prof/ops",
    "pyprof/benchmark": "ground pyprof/command pyprof/counting pyprof/rerun prof prof/ops prof/kernels prof/limits "
    "prof/changes/measured prof/plot prof/table",
    "pyprof/sampling": "ground pyprof/capture pyprof/table prof prof/work prof/summary prof/table",
    "pyprof": "ground pyprof/command prof prof/diff",
    "pyprof/mcp": "ground pyprof/command prof prof/diff pyprof",
    "pyprof/integrations": "ground pyprof/command pyprof",
}
# `pyprof run --report` writes the page of what it has just collected, `pyprof plan --measure` measures, `pyprof replay`
# draws the timeline that was simulated in the room which effects of changes stand on. Only these modules reach so far.
FURTHER = {
    "pyprof.prof.planning.plan_timings": "pyprof/benchmark",
    "pyprof.prof.changes.checkpointing_times": "prof prof/memory",  # for pyprof memory
    "pyprof.prof.replay.cli": "prof prof/perfetto",
    "pyprof.prof.replay.simulated_trace": "prof/perfetto",
    "pyprof.capture.run": "pyprof/processes",
    "pyprof.capture.run_report": "prof prof/work prof/changes prof/summary prof/report",
    "pyprof.capture.control": "pyprof/sampling",  # pyprof.profile(every=)
    "pyprof.capture.json_document": "prof/report",  # whose document is part of that of the run
}


# The tables of commands and of JSON documents name modules of all rooms, and import one when it is asked for.
REGISTRIES = ("pyprof.cli", "pyprof.command.envelope")


def modules() -> dict[str, Path]:
    """Each module by the name that Python imports it under."""
    found = {}
    for folder, package in (("pyprof", "pyprof"), ("parse", "pyprof.parse"), ("prof", "pyprof.prof")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def room(path: Path) -> str:
    folder = path.parent.relative_to(ROOT).as_posix()
    return "ground" if folder == "pyprof" and path.stem in GROUND else folder


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of ours that a file imports, at any place in it but for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    for_types = {id(inner) for node in types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.Constant) and str(node.value).count(".") > 1 and node.value in known:
            yield str(node.value)  # imported by name, when it is needed
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if name in known else node.module for name in names if node.module in known)


def arrows() -> set[tuple[str, str, str]]:
    """(module, its room, a room that it imports)"""
    known = modules()
    return {
        (name, room(path), room(known[other]))
        for name, path in known.items()
        if path.name != "__init__.py" and name not in REGISTRIES
        for other in imports(path, known)
    }


def test_every_import_between_rooms_is_allowed():
    wrong = {
        f"{name} imports {other}"
        for name, own, other in arrows()
        if own != other and other not in (*ALLOWED[own].split(), *FURTHER.get(name, "").split())
    }
    assert wrong == set()


def test_every_row_is_used():
    used = {(own, other) for _, own, other in arrows()}
    assert {(own, other) for own, row in ALLOWED.items() for other in row.split()} - used == set()


def test_no_room_imports_one_that_comes_after_it():
    order = list(ALLOWED)
    assert [(a, b) for a, row in ALLOWED.items() for b in row.split() if order.index(b) > order.index(a)] == []


def test_every_folder_is_a_room_with_a_sentence_about_it():
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in modules().values()}
    assert rooms == set(ALLOWED) - {"ground"}
    for folder in rooms:
        assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))), folder


def test_no_room_holds_more_modules_than_a_reader_can_scan():
    count = Counter(room(path) for path in modules().values() if path.name not in ("__init__.py", "__main__.py"))
    assert {name: n for name, n in count.items() if n > MOST and name != "prof/ops"} == {}


# Rooms mirror each other in these: commands have a cli.py, readers a reader.py, families of ops their advice.
MIRRORED = frozenset(
    "attention cli copies experts json_document loss memory norm optimizer reader roofline sentences sorting "
    "timeline".split()
)


def test_a_module_name_stands_once_in_each_top_folder():
    for folder in ("pyprof", "parse", "prof"):
        count = Counter(path.stem for path in (ROOT / folder).rglob("*.py") if not path.stem.startswith("__"))
        assert {name for name, n in count.items() if n > 1} - MIRRORED == set(), folder


def test_no_room_has_the_name_of_a_public_function():
    """Importing the room would hide the function."""
    import pyprof

    assert {path.name for path in (ROOT / "pyprof").iterdir() if path.is_dir()} & set(pyprof.__all__) == set()
