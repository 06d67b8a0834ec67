"""The web page: its numbers by hand, hostile names, and the command."""

import base64
import hashlib
import html
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings

from pyprof.prof import cli as prof_cli
from pyprof.prof.page import ROOM
from pyprof.prof.report import cli, operations
from pyprof.prof.report.memory_section import thinned
from pyprof.prof.report.page_model import page_model
from pyprof.prof.report.render import island, render
from pyprof.prof.table.totals import totals
from pyprof.prof.timing.steps import steps
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.prof.work.kinds import CLASSES, classes
from pyprof.table.columns import NULL, Coded
from tests.parse.kineto.kineto_file import write as write_trace
from tests.prof.memory.test_print_memory import step as step_with_memory
from tests.prof.report.report_rows import HOSTILE, model_of, page_of, small, uncounted, write_small
from tests.tables import tables

# Numbers by hand


def test_every_instant_of_a_step_counts_once():
    first, second = steps(small(), np.zeros(5, np.int64))
    # forward 100-110, backward 110-130, optimizer 140-150; the copy 105-115 lies beneath; until step 1 starts at 160
    assert first.span_ns == 60
    assert first.phase_ns == {"forward": 10, "backward": 20, "optimizer": 10}
    assert first.idle_ns == 60 - 40
    assert (second.span_ns, second.phase_ns, second.idle_ns) == (14, {"forward": 14}, 0)


@pytest.mark.parametrize(("kind", "gap"), [("kernel", "idle"), ("cpu", "outside ops")])
def test_a_cpu_is_not_called_idle(kind, gap):
    assert model_of(small(kind=Coded.of([kind] * 5)))["gap"] == gap


def test_without_steps_the_capture_is_one():
    (whole,) = steps(small(step=np.full(5, NULL, np.int64)), np.zeros(5, np.int64))
    assert (whole.number, whole.span_ns, whole.idle_ns) == (None, 74, 74 - 54)  # 100 to 174; 10+20+10+14 busy


def test_the_page_has_the_summary_of_the_capture():
    summary = model_of(small())["summary"]
    # 54 of 64 ns; step 0 lasts until step 1 begins: the GPU works for 40 of 60 ns. How long step 1 lasts is not known.
    operations, time = "4 kernels and 1 copy on one GPU.", "84.4% of 0.0001 ms of GPU time"
    assert summary["headline"] == f"{operations} {time} is attributed to an op."
    figures = {figure["name"]: figure["value"] for figure in summary["figures"]}
    assert (figures["attributed"], figures["GPU busy"]) == ("84.4%", "66.7%")
    (phases,) = [table["rows"] for table in summary["tables"] if table["key"] == "phases"]
    assert [row[:2] for row in phases] == [
        ("forward", "2"),
        ("backward", "1"),
        ("optimizer", "1"),
        ("other", "1"),
        ("all", "5"),
    ]
    page = page_of(small())
    assert all(sentence.replace("<", r"\u003c") in page for sentence in summary["sentences"])  # in the page's data
    assert '<th scope="row">optimizer</th><td>1</td>' in page


@pytest.mark.parametrize("name", ["h200_gpt2_init", "h200x4_collectives"])
def test_the_page_says_every_sentence_that_the_terminal_says(name, root, tmp_path, capfdbinary):
    """Communication, causes of idle time and late launches among them; each on the page as text, in the same order."""
    file = str(root / "tests" / "golden" / f"{name}.sqlite.gz")
    assert prof_cli.main(["--summary", "-q", "-w", "100", file]) == 0
    lines = capfdbinary.readouterr().out.decode().split("\nKind of work")[0].split("\n\n")  # without tables
    said = [" ".join(each.split()) for part in lines for each in part.split("• ")[1:]]
    assert cli.main([file, "-q", "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    begin = page.index('class="sentences"')
    part = page[begin : page.index("</section>", begin)]
    shown = [html.unescape(re.sub(r"<[^>]*>", "", item)) for item in re.findall(r"<li>(.*?)</li>", part)]
    assert shown == said
    words = "The GPU limits the step: the GPU works for " if name == "h200_gpt2_init" else "Communication takes"
    assert any(words in sentence for sentence in shown)


def test_equal_rows_are_one_call():
    model = model_of(small())
    assert len(model["calls"]["numbers"]["flops"]) == 4  # k_fwd twice
    call = model["rows"]["call"]
    assert call[0] == call[4] and len(set(call)) == 4
    assert model["rows"]["start"] == [100, 5, 5, 30, 20]  # each from the one before
    assert model["rows"]["dur"] == [10, 10, 20, 10, 14]
    assert model["rows"]["wait"] == {"all": None, "count": 5}  # no launches
    assert [lane["name"] for lane in model["lanes"]] == ["stream 7", "stream 8"]


def test_rows_come_by_start_and_those_without_one_last():
    model = model_of(small(start=np.array([50, NULL, 20, 30, 40])))
    assert model["rows"]["start"] == [20, 10, 10, 10, None]
    assert model["rows"]["dur"] == [20, 10, 14, 10, 10]


def unpacked(text, count):
    """The numbers that the page's own code reads: varints in base64, 0 for an unknown number."""
    found, code, shift = [], 0, 0
    for byte in base64.b64decode(text):
        code |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(None if code == 0 else (code - 1) // 2 if code % 2 else -(code // 2))
            code = shift = 0
    assert len(found) == count
    return found


def test_long_columns_are_packed(monkeypatch):
    plain = model_of(small(start=np.array([50, NULL, 20, 30, 1 << 40])))["rows"]
    monkeypatch.setattr(operations, "LONG", 1)
    packed = model_of(small(start=np.array([50, NULL, 20, 30, 1 << 40])))["rows"]
    assert plain["start"] == [20, 10, 20, (1 << 40) - 50, None]
    for key, column in plain.items():
        same = column if isinstance(column, dict) else unpacked(packed[key]["packed"], packed[key]["count"])
        assert same == column, key
    runs = operations._listed(np.repeat([3, NULL, -7], [100, 50, 1]), rising=False)
    assert unpacked(runs["packed"], runs["count"]) == [3, None, -7]
    assert (unpacked(runs["lengths"], runs["count"]), runs["rows"]) == ([100, 50, 1], 151)


def test_calls_of_ops_are_numbered_in_order_of_time():
    # rows by start: a (op 9), b (no op), a's second kernel, c (op 4); a launch of a graph repeats op 4 as another call
    found = model_of(
        small(
            opId=np.array([9, NULL, 9, 4, 4]),
            graphNode=np.array([NULL, NULL, NULL, 1, 1]),
            corr=np.array([1, 2, 3, 4, 5]),
        )
    )["rows"]["instance"]
    assert np.cumsum(found).tolist() == [0, 1, 0, 2, 3]


def test_gaps_have_a_cause_by_row():
    # 130 to 140 and 150 to 160 are idle; the first row after was called for at 135, the other at 120, before the gap
    api = np.array([90, 95, 100, 135, 120])
    found = model_of(small(apiStart=api, apiDuration=np.full(5, 2)))
    names = [cause["name"] for cause in found["why"]]
    assert [None if code is None else names[code] for code in found["rows"]["why"]] == [
        None,
        None,
        None,
        "launch",
        "queued",
    ]


def test_kernels_of_torch_compile_have_the_class_of_their_name():
    made = small(
        (
            ("triton_red_fused_sum_0", '["f"]', "forward", "fprop", 0, 1, 0, 7),
            ("triton_poi_fused_add_1", '["f"]', "forward", "fprop", 2, 1, 0, 7),
        )
    )
    family = Coded(np.zeros(2, np.int32), ["compiled"])
    found = classes(made, Annotation(*[uncounted(2).flops] * 2, *[Coded.empty(2)] * 3, family, {}))
    assert found.texts() == ["softmax, loss, reductions", "element-wise"]


def test_unattributed_rows_are_summed_by_reason_and_name():
    names = ("a", "b", "a", "c", "k")
    rows = tuple((name, '["op"]' if name == "k" else "", "other", "", 0, 10, 0, 7) for name in names)
    # texts may have several codes, as readers make them
    reason = Coded(
        np.array([0, 0, 1, 2, -1], np.int32), ["no API row", "no API row", "only user ranges around the launch: x"]
    )
    api, user = model_of(small(rows, reason=reason))["unattributed"]
    assert (api["reason"], api["rows"], api["ns"]) == ("no API row", 3, 30)
    assert api["names"] == [{"name": "a", "rows": 2, "ns": 20}, {"name": "b", "rows": 1, "ns": 10}]
    assert api["remedy"].startswith("the file is cut")
    assert (user["rows"], [each["name"] for each in user["names"]]) == (1, ["c"])


def test_classes_go_by_family_then_kind_then_name():
    names = ["ncclDevKernel_AllReduce", "ampere_sgemm_128x64_tn", "elementwise_kernel", "copy", "what"]
    rows = tuple((name, "", "", "", i, 1, 0, 7) for i, name in enumerate(names))
    table = small(rows)
    found = classes(table, annotate(table)).texts()
    assert found == [
        "communication",
        "GEMM, recurrent layers",
        "element-wise",
        "copies, indexing, random numbers",
        "other",
    ]
    assert set(found) < set(CLASSES)


def test_ranks_and_devices_are_told_apart():
    model = model_of(small(rank=np.array([0, 0, 0, 0, 1])))
    assert model["owners"] == ["device, rank 0", "device, rank 1"]
    assert [step["owner"] for step in model["steps"]] == [0, 1]


def test_a_page_has_the_suffix_of_a_page(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["-o", str(tmp_path / "page.csv"), "net.dict"])
    assert done.value.code == 2
    known = ".html, .htm or none (each also with .gz)"
    error = f"argument -o: {tmp_path}/page.csv: .csv is no known suffix; there are {known}"
    assert capsys.readouterr().err == f"pyprof report: error: {error}\n"


# What is hostile


def test_the_island_cannot_end_and_gives_back_what_it_was_given():
    text = island({"name": HOSTILE})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": HOSTILE}


def test_hostile_names_stay_text_in_the_page():
    hostile = ((HOSTILE, json.dumps([HOSTILE]), HOSTILE, HOSTILE, 100, 10, 0, 7),)
    page = page_of(small(hostile), title=HOSTILE, advice=[{"rule": HOSTILE}])
    outside = re.sub(r"(<script[^>]*>).*?</script>", "", page, flags=re.DOTALL)
    assert "<img" not in outside and "&lt;img" in outside
    assert page.count("<script") == page.count("</script") == 3  # the island, the library, ours
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["calls"]["texts"]["name"]["values"] == [HOSTILE]
    assert "{{7*7}}" in page


@settings(max_examples=30)
@given(tables())
def test_any_table_makes_a_page(table):
    for key in ("kDuration", "start", "apiStart"):  # sums of times stay within 64 bits
        table = table.with_column(key, table.ints(key) % 1000)
    annotation = uncounted(len(table))
    model = page_model(table, annotation)
    assert json.loads(island(model)) == json.loads(json.dumps(model))
    out = io.BytesIO()
    render(model, out)
    assert out.getvalue().count(b"</script>") == 3


def test_a_kernel_whose_name_begins_like_a_list_has_a_page_and_a_summary():
    names = Coded.of(['["half a list'] * len(small()))
    table = small().with_column("kShortName", names).with_column("op", Coded.of([""] * len(names.codes)))
    table = table.with_column("aten", Coded.of([""] * len(names.codes)))
    assert {found["name"] for found in model_of(table)["uncounted"]} == {'["half a list'}
    assert '["half a list' in totals(table, annotate(table)).line()


def test_half_a_surrogate_pair_has_a_page():
    assert "<h1>?</h1>" in page_of(small(), title="\ud83d")


def test_the_policy_allows_our_scripts_and_no_connection():
    page = page_of(small())
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert "connect-src" not in policy and "http" not in policy  # default-src is none


def test_the_library_is_the_one_that_its_page_names():
    library = (ROOM / "report" / "templates" / "vendor" / "echarts.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (ROOM / "report" / "templates" / "vendor" / "README.md").read_text(
        encoding="utf-8"
    )


def test_the_page_carries_the_licences_of_what_it_contains():
    """ECharts, and what its bundle contains: ZRender, d3. Apache's and BSD's terms ask for it in each copy."""
    page = page_of(small())
    assert "Licensed to the Apache Software Foundation" in page and "www.apache.org/licenses/LICENSE-2.0" in page
    for holder in ("2017-2026 The Apache Software Foundation", "2017, Baidu Inc.", "2010-2016 Mike Bostock"):
        assert f"Copyright {holder}" in page.replace("(c) ", "")
    assert page.count("Redistributions in binary form must reproduce") == 2


# The command


def test_the_command_writes_a_page_of_a_table_and_of_a_profilers_file(tmp_path, root, capsys):
    write_small(tmp_path / "net.dict")
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(tmp_path / "a.html")]) == 0
    assert "84.4% of 0.0001 ms of GPU time" in capsys.readouterr().err
    golden = root / "tests" / "golden" / "h200_lenet_init.sqlite.gz"
    assert cli.main([str(golden), "-q", "-o", str(tmp_path / "b.html"), "--title", "LeNet"]) == 0
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<title>LeNet</title>" in page and len(page) < 2_000_000
    assert capsys.readouterr().err == ""


def test_nothing_is_overwritten_unasked_and_bad_input_is_one_line(tmp_path, capsys):
    write_small(tmp_path / "net.dict")
    taken = tmp_path / "report.html"
    taken.write_text("mine")
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(taken)]) == 1
    assert taken.read_text() == "mine"
    assert cli.main([str(tmp_path / "net.dict"), "-o", str(taken), "--force"]) == 0
    (tmp_path / "bad.dict").write_text("nothing of the kind")
    assert cli.main([str(tmp_path / "bad.dict"), "-o", str(tmp_path / "no.html")]) == 1
    assert not (tmp_path / "no.html").exists()
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_the_options_are_these():
    options = {name for action in cli.build_parser()._actions for name in action.option_strings}
    assert options == {
        "-h",
        "--help",
        "-o",
        "--output",
        "--force",
        "--title",
        "--graphs",
        "--ncu",
        "--peaks",
        "--models",
        "--json",
        "-q",
        "--quiet",
        "--version",
    }


# Memory


def test_the_memory_section_is_there_where_allocations_are(root, tmp_path):
    file = root / "tests" / "golden" / "memory" / "h200_gpt2.json.gz"
    assert cli.main([str(file), "-q", "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('id="memory-section"') :].partition("</section>")[0]
    assert '<th scope="row" title="Gpt2_0:Block_*">Gpt2_0:Block_*</th><td>4</td><td>966 MB</td>' in section
    assert 'popovertarget="term-activations"' in section and 'popovertarget="term-before-the-capture"' in section
    found = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])["memory"]
    assert found["peak"]["bytes"] == max(found["in_use"]) == 6_907_360_256
    assert found["time"] == sorted(found["time"]) and max(found["reserved"]) == 8_025_800_704
    assert 'id="memory-section"' not in page_of(small())


def test_hostile_layers_in_the_memory_section_are_text(tmp_path):
    trace = write_trace(tmp_path / "net.json", *step_with_memory(HOSTILE))
    assert cli.main([str(trace), "-q", "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="memory-section"' in page and "<img src=x" not in page


def test_a_long_line_keeps_its_peak():
    total = np.arange(100_000) % 977
    total[77_777] = 5000
    kept = thinned(total, 100)
    assert 77_777 in kept and kept[0] == 0 and kept[-1] == 99_999 and len(kept) <= 401
    assert np.all(np.diff(kept) > 0)
