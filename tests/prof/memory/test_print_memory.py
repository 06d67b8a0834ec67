"""The command pyprof memory: tables of 80 columns, JSON, CSV, its options and its errors."""

import csv
import io
import json
import os

import pytest

from pyprof.command.terminal_text import page
from pyprof.prof.memory.memory_numbers import memory_numbers
from pyprof.prof.memory.peak_content import PeakContent
from pyprof.prof.print_memory import build_parser, main
from pyprof.prof.summary.memory_tables import memory_tables
from pyprof.prof.summary.tables import SummaryTable
from pyprof.prof.summary.terminal import print_table
from pyprof.table.columns import NULL
from tests.answered import answer, strict
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write, x
from tests.parse.kineto.test_memory import memory
from tests.paths import GOLDEN
from tests.prof.memory.memory_rows import MIB, event, table
from tests.prof.report.report_rows import HOSTILE

GPT2 = str(GOLDEN / "memory" / "h200_gpt2.json.gz")


def node(ts, dur, seq):
    name = "autograd::engine::evaluate_function: MmBackward0"
    return [
        op(name, ts, dur, AUTOGRAD, Sequence_number=seq, Fwd_thread_id=1),
        op("MmBackward0", ts + 1, dur - 2, AUTOGRAD, Sequence_number=seq, Fwd_thread_id=1),
    ]


def step(name="h"):
    """Two layers, each of which saves 100 MB."""
    events = [begin(0)]
    for i in range(2):
        at = 100 + 50 * i
        events += [
            x("user_annotation", "layer:GPT", at, 40),
            x("user_annotation", f"layer:{name}.{i}", at + 1, 38),
            op("aten::mm", at + 2, 30, Sequence_number=i + 1, Fwd_thread_id=0, External_id=i + 1),
            memory(at + 3, 100_000_000, 0x1000 * (i + 1), total=100_000_000 * (i + 1)),
            call(at + 5, i + 1, External_id=i + 1),
            kernel(at + 10, 20, i + 1),
        ]
    for i in (1, 0):
        at = 300 + 50 * (1 - i)
        events += [*node(at, 40, i + 1), memory(at + 30, -100_000_000, 0x1000 * (i + 1), AUTOGRAD, 100_000_000 * i)]
    return events


def run(capfdbinary, *argv):
    try:
        code = main(list(argv))
    except SystemExit as stop:
        code = stop.code
    out, err = capfdbinary.readouterr()
    return code, out.decode(), err.decode()


def test_the_options_are_frozen():
    names = {name for action in build_parser()._actions for name in action.option_strings}
    assert names == {
        "-h", "--help", "--top", "--checkpoint", "--step-ms", "--csv", "--json", "-w", "-o", "--output", "--force",
        "-q", "--quiet", "--version",
    }  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_longer_than_the_width_but_for_figures(width, capfdbinary):
    code, out, err = run(capfdbinary, GPT2, "-w", str(width))
    assert (code, err) == (0, "")
    figures = 8 + 8 + 10 + 10 + 11 + 25  # a name's ends, and the five columns of checkpointing
    assert max(map(len, out.splitlines())) <= max(width, figures)
    assert "step 1  6.907 GB  8.026 GB" in out
    assert "       4  865.3 MB  6.042 GB   1.262 ms   2.387 ms (2.04 – 2.78)\n" in out


def test_numbers_are_aligned(capfdbinary):
    _, out, _ = run(capfdbinary, GPT2, "-w", "80")
    begins = out.index("In use at the peak, by layer")
    rows = out[begins:].split("\n\n")[0].splitlines()[1:]
    ends = {line.index("GB") + 2 if "GB" in line else line.index("B", 25) + 1 for line in rows[1:]}
    assert len(ends) == 1


def test_top_cuts_the_tables_and_says_so(capfdbinary):
    _, out, _ = run(capfdbinary, GPT2, "--top", "2")
    assert "In use at the peak, by layer, the 2 largest of 5" in out
    assert "With activation checkpointing of these layers, the 2 most effective of 5" in out


def test_sentences_of_a_small_step(tmp_path, capfdbinary):
    code, out, _ = run(capfdbinary, str(write(tmp_path / "net.json", *step())), "-w", "200")
    sentences = " ".join(out.partition("\n\n")[0].split()).split("• ")[1:]
    assert code == 0
    assert sentences[:3] == [
        "GPU memory in use peaks at 200 MB, in the forward pass at mm; PyTorch's allocator holds up to 4.096 kB in "
        "reserve. ",
        "At the peak it holds 200 MB (100%) of activations. ",
        "The forward pass saves 200 MB of activations for the backward pass; the 2 layers GPT:h.* hold 200 MB of them "
        "(100%). ",
    ]


def test_shares_of_a_growth_are_of_what_the_capture_allocated():
    """30 of 100 + 60 B were allocated before the capture and freed: the growth is 130 B, the blocks are 160 B."""
    rows = [event(1, -30, 8), event(2, 100, 16, "forward", "N:a"), event(3, 60, 24, "forward", "N:b")]
    (device,) = memory_numbers(table(*rows, start=None, kind="cpu"), None)
    assert device.peak_bytes == 130
    tables = {each.key: each for each in memory_tables(device)}
    categories, layers = tables["memory-categories"], tables["memory-layers"]
    assert categories.title == "Allocated since the capture began and in use at the peak, 160 B, by category"
    assert [row[2:4] for row in layers.rows] == [("100 B", "62.5%"), ("60 B", "37.5%")]


def test_checkpoint_predicts_the_layers_that_are_named(tmp_path, capfdbinary):
    file = str(write(tmp_path / "net.json", *step()))
    code, out, _ = run(capfdbinary, file, "--checkpoint", "GPT:h.1", "--json")
    assert code == 0
    (found,) = json.loads(out)["devices"][0]["checkpointing"]
    assert (found["names"], found["saved_bytes"]) == (["GPT:h.1"], 100_000_000)
    code, out, err = run(capfdbinary, file, "--checkpoint", "GPT:x")
    assert (code, out) == (1, "") and err.count("\n") == 1 and "found none of that name" in err


def test_json_is_the_document(capfdbinary):
    code, out, err = run(capfdbinary, GPT2, "--json")
    found = answer(out.encode(), "memory", "memory")
    assert (code, err) == (0, "") and found["devices"][0]["peak_bytes"] == 6_907_360_256
    assert found["sentences"][0].startswith("GPU memory in use peaks at 6.907 GB, in the backward pass of step 0")
    assert strict(out.encode())


def test_csv_has_a_line_per_event(tmp_path, capfdbinary):
    code, out, _ = run(capfdbinary, str(write(tmp_path / "net.json", *step())), "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and [int(row["bytes"]) for row in rows] == [10**8, 10**8, -(10**8), -(10**8)]
    assert [row["peer"] for row in rows] == ["3", "2", "1", "0"]
    assert (rows[0]["freed"], rows[0]["layer"], rows[2]["freed"]) == ("380000", '["GPT", "h.0"]', "")


def test_an_output_file_is_whole_and_not_overwritten(tmp_path, capfdbinary):
    target = tmp_path / "memory.txt"
    assert run(capfdbinary, GPT2, "-o", str(target))[0] == 0
    assert target.read_text().startswith("• GPU memory in use")
    code, _, err = run(capfdbinary, GPT2, "-o", str(target))
    assert code == 1 and "exists; give --force" in err


def test_hostile_names_stay_text(tmp_path, capfdbinary):
    file = str(write(tmp_path / "net.json", *step(HOSTILE + "\x1b[31m\n=cmd|x")))
    code, out, err = run(capfdbinary, file, "-w", "100", "-q")
    assert (code, err) == (0, "") and "\x1b" not in out
    assert run(capfdbinary, file, "--json")[0] == 0
    code, out, _ = run(capfdbinary, file, "--csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 4


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            [begin(0), op("aten::mm", 1, 2)],
            "expected allocations, found none; record them with pyprof run --memory, or",
        ),
        ([], "expected a torch.profiler (Kineto) trace"),
    ],
)
def test_a_file_without_allocations_says_how_to_record_them(events, words, tmp_path, capfdbinary):
    code, out, err = run(capfdbinary, str(write(tmp_path / "net.json", *events)), "-q")
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1


def test_an_nsys_export_without_allocations(capfdbinary):
    code, _, err = run(capfdbinary, str(GOLDEN / "h200_lenet.sqlite.gz"), "-q")
    assert code == 1 and "record them with nsys profile --cuda-memory-usage=true" in err


@pytest.mark.skipif(not os.environ.get("PYPROF_DATA"), reason="PYPROF_DATA does not name the folder of captures")
@pytest.mark.parametrize("part", ["h100__Qwen", "h100__gaunernst", "mi300__gaunernst", "kineto_v100_workers0"])
def test_captures_of_others(part, capfdbinary):
    from pathlib import Path

    (file,) = [path for path in Path(os.environ["PYPROF_DATA"]).glob("*/*.json.gz") if part in path.name]
    code, out, err = run(capfdbinary, str(file), "--json", "-q")
    assert (code, err) == (0, "")
    gpu = json.loads(out)["devices"][0]
    assert gpu["kind"] == ("hip" if "mi300" in part else "cuda") and gpu["missing"] == 0
    # the greatest "Total Allocated" of the file's events, found by a plain search; 2021's traces have none
    peaks = {"h100__Qwen": 2_088_508_416, "h100__gaunernst": 101_305_344}
    assert gpu["peak_bytes"] == peaks.get(part, gpu["peak_bytes"]) and gpu["exact"] == ("v100" not in part)


LONG = "GPT:blocks.*:feed_forward.experts.*:gate"


@pytest.mark.parametrize(
    ("width", "name", "bars"),
    [(91, LONG, True), (75, "GPT:blocks...erts.*:gate", True), (74, LONG, False), (44, "GPT:block..s.*:gate", False)],
)
def test_short_lines_cut_names_to_24_characters_then_leave_bars_out_and_cut_no_figure(width, name, bars):
    """The figures take 8 + 10 + 7 characters, the name 40 and the longest bar 2 + 24."""
    table = SummaryTable("key", "Title", ("", "layers", "bytes", ""), ((LONG, "12", "865.3 MB", "12.5%"),), (1.0,))
    out = io.BytesIO()
    with page(out, width, terminal=False) as console:
        print_table(console, table, fitted=True)
    *_, head, row = out.getvalue().decode().splitlines()
    assert row == f"{name}      12  865.3 MB  12.5%" + ("  " + 24 * "█" if bars else "")
    assert head == " " * len(name) + "  layers     bytes"


def test_without_addresses_nothing_is_said_of_the_blocks_at_the_peak():
    """MiB: 4 are allocated and freed, then 6 allocated. Of a free without an address it is not known what it frees."""
    events = [event(time, size * MIB, NULL) for time, size in ((1, 4), (2, -4), (3, 6))]
    (device,) = memory_numbers(table(*events, start=None))
    assert device.peak_bytes == 6 * MIB and device.content == PeakContent([], [], [])
    assert [each.key for each in memory_tables(device)] == []
