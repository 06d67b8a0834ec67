"""pyprof.load: DataFrames, sums, words and pages; worked out by hand, and against SQLite on real captures."""

import contextlib
import gzip
import json
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

import pyprof
from pyprof.errors import InputError, PyprofError
from pyprof.prof.captured import Captured
from pyprof.prof.notebook.profiled import Profile
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.condition import ConditionError
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.netdict import write_netdict
from pyprof.table.parquet import write_parquet
from tests.tables import readable_tables

HOSTILE = "<script>alert(1)</script> $x$ \\(y\\) \x1b[31m & \"'"


def sample() -> Table:
    """net.h.0.fc: a product forward (2·2·3·4 = 48 flop, 104 bytes) and two of its backward; a relu of 8 floats in
    net.h.1 (64 bytes); one kernel that nothing is known of, and a call that no model counts."""
    fc, h1 = '["net", "net.h.0", "net.h.0.fc"]', '["net", "net.h.1"]'
    return Table(
        6,
        {
            "kShortName": Coded.of(["gemm", "relu_kernel", "gemm", "gemm", "odd", "own"]),
            "kDuration": np.array([400, 100, 200, 200, 300, 1000]),
            "layer": Coded.of([fc, h1, fc, fc, "", h1]),
            "dir": Coded.of(["fprop", "fprop", "bprop", "bprop", "", "fprop"]),
            "phase": Coded.of(["forward", "forward", "backward", "backward", "", "forward"]),
            "op": Coded.of(['["linear"]', '["relu"]', '["linear"]', '["linear"]', "", '["custom"]']),
            "mod": Coded.of(['["torch"]', '["torch"]', '["torch"]', '["torch"]', "", '["mine"]']),
            "kind": Coded.of(["kernel"] * 6),
            "start": np.array([0, 500, 700, 900, 1100, 2000]),
            "opId": np.array([1, 2, 3, 4, NULL, 5]),
            "step": np.array([0, 0, 0, 0, 0, 1]),
            "pid": np.full(6, 7),
            "device": np.zeros(6, np.int64),
            "aten": Coded.of(["aten::mm", "aten::relu", "aten::mm", "aten::mm", "", "mine::op"]),
            "sizes": Coded.of(["[[2, 3], [3, 4]]", "[[8]]", "[[2, 3], [3, 4]]", "[[2, 3], [3, 4]]", "", "[[9]]"]),
            "dtypes": Coded.of(
                [
                    '["float32", "float32"]',
                    '["float32"]',
                    '["float32", "float32"]',
                    '["float32", "float32"]',
                    "",
                    '["float16"]',
                ]
            ),
        },
    )


def stored(tmp_path, table: Table, name: str = "net.dict") -> str:
    if name.endswith(".parquet"):
        write_parquet(table, tmp_path / name)
    elif name.endswith(".gz"):
        with gzip.open(tmp_path / name, "wb") as out:
            write_netdict(table, out)
    else:
        with (tmp_path / name).open("wb") as out:
            write_netdict(table, out)
    return str(tmp_path / name)


@pytest.fixture
def profile(tmp_path):
    return pyprof.load(stored(tmp_path, sample()))


# DataFrames, by hand


def test_kernels_have_every_column_with_types_that_hold_what_is_not_known(profile):
    kernels = profile.kernels
    assert list(kernels.columns) == list(COLUMN)
    assert kernels["sil"].tolist() == [400, 100, 200, 200, 300, 1000]
    kinds = {"int": "Int64", "text": "category", "float": "float64"}
    assert {name: str(kernels[name].dtype) for name in COLUMN} == {n: kinds[c.kind] for n, c in COLUMN.items()}
    assert kernels["flops"].isna().tolist() == [False, False, False, False, True, True]
    assert kernels["flops"].sum() == 3 * 48
    assert kernels["op"].isna().tolist() == [False, False, False, False, True, False]
    assert list(kernels["op"].cat.categories) == ["linear", "relu", "custom"]
    assert kernels["layer"][0] == "net:net.h.0:net.h.0.fc"
    assert kernels.attrs["units"]["sil"] == "ns" and kernels.attrs["units"]["bytes"] == "bytes"
    assert kernels.attrs["meanings"].keys() == COLUMN.keys()


def test_ops_are_sums_by_op_and_direction(profile):
    ops = profile.ops.set_index("op")
    assert ops.index.tolist()[:1] == ["custom"] and len(ops) == 5
    linear = profile.ops[profile.ops["op"] == "linear"]
    assert linear[["dir", "calls", "count", "time"]].values.tolist() == [["fprop", 1, 1, 400], ["bprop", 2, 2, 400]]
    assert linear["flops"].tolist() == [48, 96] and linear["bytes"].tolist() == [104, 208]
    assert linear["share"].tolist() == pytest.approx([100 * 400 / 2200] * 2)
    assert linear["tflops"].tolist() == pytest.approx([48 / 400 / 1e3, 96 / 400 / 1e3])
    assert linear["sol"].isna().all()  # no GPU is named: no limits
    nothing = profile.ops[profile.ops["op"].isna()]
    assert nothing["count"].tolist() == [1] and nothing["calls"].isna().all() and nothing["flops"].isna().all()
    assert ops.loc["custom", ["uncounted", "bytes_uncounted"]].tolist() == [100, 100]


def test_layers_hold_what_is_in_them_and_own_times_sum_to_all(profile):
    layers = profile.layers
    told = layers[["layer", "depth", "count", "time", "own", "forward", "backward"]].values.tolist()
    assert told[:-1] == [
        ["net", 1, 5, 1900, 0, 1500, 400],
        ["net:h.0", 2, 3, 800, 0, 400, 400],
        ["net:h.0:fc", 3, 3, 800, 800, 400, 400],
        ["net:h.1", 2, 2, 1100, 1100, 1100, 0],
    ]
    last = layers.iloc[-1]
    assert (layers["layer"].isna().tolist()[-1], last["count"], last["own"]) == (True, 1, 300)
    assert layers["own"].sum() == 2200 == profile.totals.time_ns
    assert layers["flops"].tolist()[:3] == [144, 144, 144]
    assert layers["uncounted"].tolist()[3] == pytest.approx(100 * 1000 / 1100)
    assert np.isnan(layers["tflops"].tolist()[3])  # most of its time is not counted
    assert layers["share"].tolist()[0] == pytest.approx(100 * 1900 / 2200)


def test_steps_sum_phases_and_idle_time(profile):
    steps = profile.steps
    names = ["step", "start", "time", "forward", "backward", "optimizer", "data", "other", "idle", "count", "flops"]
    assert steps[names].values.tolist()[0] == [0, 0, 2000, 500, 400, 0, 0, 300, 800, 5, 144]
    second = steps[names].iloc[1]
    assert second.tolist()[:-1] == [1, 2000, 1000, 1000, 0, 0, 0, 0, 0, 1] and pd.isna(second["flops"])
    assert steps["tflops"].tolist()[0] == pytest.approx(144 / 2000 / 1e3)
    assert steps["uncounted"].tolist() == [25, 100]  # 300 of 1200
    assert steps["bytes_uncounted"].tolist() == [25, 100]
    parts = steps[["forward", "backward", "optimizer", "data", "other", "idle"]].sum(axis=1)
    assert parts.tolist() == steps["time"].tolist()


def test_totals(profile):
    totals = profile.totals
    assert (totals.rows, totals.time_ns, totals.attributed_ns, totals.counted_ns) == (6, 2200, 1900, 900)
    assert (totals.flop, totals.nbytes) == (144, 3 * 104 + 64)
    assert totals.tflops == pytest.approx(144 / 900 / 1e3)
    empty = profile.where("op == 'none of these'")
    assert (len(empty), empty.totals.flop, empty.totals.tflops) == (0, None, None)
    assert [len(getattr(empty, name)) for name in ("kernels", "ops", "layers", "steps", "advice")] == [0] * 5


def test_group_is_that_of_the_command(profile):
    found = profile.group("op, dir".replace(" ", ""))
    assert found[["op", "dir", "time"]].values.tolist()[:3] == [
        ["custom", "fprop", 1000],
        ["linear", "fprop", 400],
        ["linear", "bprop", 400],
    ]
    assert profile.group(["layer"], layer_depth=2)["layer"].tolist()[:2] == ["net:h.1", "net:h.0"]
    for wrong in ("nothing", "sol"):
        with pytest.raises(PyprofError, match=rf"group\(\): '{wrong}' is no column to group by; there are: idx, seq"):
            profile.group(wrong)


# Some of the rows


def test_where_narrows_and_keeps_the_numbers_of_the_run(profile):
    back = profile.where("op == 'linear'").where("dir == 'bprop'")
    assert back.kernels["idx"].tolist() == [3, 4]
    assert back.conditions == ("op == 'linear'", "dir == 'bprop'")
    assert (len(back), back.totals.time_ns) == (2, 400)
    assert back.group("op")["share"].tolist() == [100]
    assert back.annotation.uncounted == {} and profile.annotation.uncounted == {"mine::op": 1000, "odd": 300}
    steps = back.steps
    assert steps[["step", "time", "idle", "count", "flops"]].values.tolist() == [[0, 2000, 800, 2, 96]]
    with pytest.raises(ConditionError, match="no column"):
        profile.where("nothing == 1")


def test_only_the_texts_in_use_are_kept():
    taken = Coded.of(["a", "", "b", "c", "b"]).take(np.array([4, 1, 2])).used()
    assert (taken.values, taken.codes.tolist(), taken.texts()) == (["b"], [0, -1, 0], ["b", "", "b"])
    assert Coded.empty(2).used().texts() == ["", ""]


def test_a_call_of_two_kernels_stays_one_where_only_one_is_left(tmp_path):
    """What the run counted is not counted again for a part of it."""
    two = Table(
        2,
        {
            "kShortName": Coded.of(["gemm", "splitKreduce_kernel"]),
            "kDuration": np.array([100, 50]),
            "op": Coded.of(['["mm"]'] * 2),
            "mod": Coded.of(['["torch"]'] * 2),
            "aten": Coded.of(["aten::mm"] * 2),
            "sizes": Coded.of(["[[2, 3], [3, 4]]"] * 2),
            "dtypes": Coded.of(['["float32", "float32"]'] * 2),
            "opId": np.array([1, 1]),
            "start": np.array([0, 100]),
            "kind": Coded.of(["kernel"] * 2),
        },
    )
    profile = pyprof.load(stored(tmp_path, two))
    assert profile.kernels["flops"].tolist() == [48, 0]
    assert profile.where("kernel like 'splitK*'").kernels["flops"].tolist() == [0]
    assert profile.ops[["calls", "count"]].values.tolist() == [[1, 2]]


def test_a_part_of_the_run_has_a_summary_and_some_ops_have_none(profile):
    assert profile.where("step == 1").summary().numbers.total_ns == 1000
    assert str(profile.where("step == 0 and device == 0").summary()).startswith("Where step == 0 and device == 0:\n5 k")
    with pytest.raises(PyprofError, match=r"summary\(\): expected a whole run, .* found rows where op == 'linear'"):
        profile.where("op == 'linear'").summary()
    with pytest.raises(PyprofError, match="no row is left where step == 8"):
        profile.where("step == 8").summary()


# Inputs


@pytest.mark.parametrize("name", ["net.dict", "net.dict.gz", "net.parquet"])
def test_each_form_of_a_kernel_table_is_read(name, tmp_path):
    profile = pyprof.load(tmp_path / stored(tmp_path, sample(), name))
    assert (len(profile), profile.totals.time_ns, profile.name) == (6, 2200, name)


def test_peaks_may_be_a_file(tmp_path, root):
    file = root / "tests" / "golden" / "h200_gpt2_init.sqlite.gz"
    (tmp_path / "peaks.json").write_text('{"format": "pyprof peaks", "byte_per_s": 2.4e12}')
    slow, sheet = pyprof.load(file, peaks=tmp_path / "peaks.json"), pyprof.load(file)
    memory = (sheet.kernels["bound"] == "memory") & (slow.kernels["bound"] == "memory")
    assert memory.sum() > 5  # the data sheet has 4.8 TB/s: with half of it all limits are twice as far
    assert slow.kernels["sol"][memory].tolist() == pytest.approx((2 * sheet.kernels["sol"][memory]).tolist())


def test_ranks_become_one(data):
    files = [data / "kineto" / f"h200x2_gpt2_ddp_rank{rank}.json.gz" for rank in (0, 1)]
    both, first = pyprof.load(*files), pyprof.load(files[0])
    assert both.kernels["rank"].unique().tolist() == [0, 1]
    mine = both.where("rank == 0")
    assert (len(mine), mine.totals) == (len(first), first.totals)
    assert mine.summary().numbers.devices[0].busy_ns == first.summary().numbers.devices[0].busy_ns
    assert (both.name, len(both.inputs)) == ("h200x2_gpt2_ddp_rank0.json.gz and 1 more", 2)
    assert both.steps["device"].nunique() == 2


def test_what_is_no_capture_is_told(tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    for wrong in (tmp_path / "x.txt", tmp_path / "missing.sqlite"):
        with pytest.raises(InputError, match=str(wrong)):
            pyprof.load(wrong)
    with pytest.raises(PyprofError, match=r"load\(\): expected a file, found none"):
        pyprof.load()


# Cost and dependencies


def test_importing_pyprof_stays_cheap_and_load_needs_no_torch(root):
    code = (
        "import sys, pyprof; print(*sorted({'numpy', 'pandas', 'matplotlib', 'torch'} & set(sys.modules)), '|')\n"
        "p = pyprof.load('tests/golden/h200_lenet_init.sqlite.gz'); p.totals, str(p.summary()), p._repr_html_()\n"
        "print(*sorted({'pandas', 'matplotlib', 'torch'} & set(sys.modules)), '|')\n"
        "p.ops, p.timeline(); print(*sorted({'pandas', 'pyplot', 'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "|\n|\npandas\n", "")


@pytest.mark.parametrize(
    ("package", "use", "what"), [("pandas", "p.kernels", "."), ("matplotlib", "p.roofline()", "'.[plot]'")]
)
def test_a_package_that_is_missing_is_one_line(package, use, what, root):
    code = (
        f"import sys; sys.modules[{package!r}] = None; import pyprof\n"
        f"p = pyprof.load('tests/golden/h200_lenet_init.sqlite.gz')\n"
        f"try: {use}\nexcept pyprof.PyprofError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    told = f"the package {package} is not installed for this Python (install pyprof: pip install {what})\n"
    assert (done.stdout, done.stderr) == (told, "")


def test_the_extras_that_errors_name_are_those_of_setup(root):
    from pyprof.errors import EXTRA

    text = (root / "setup.py").read_text()
    for package, extra in EXTRA.items():
        named = text.split(f"\n{extra.upper()} = ")[1].split("\n")[0]
        assert package in named


# What people see


def test_what_a_notebook_shows_is_escaped_and_has_no_colours_of_its_own(tmp_path):
    table = sample()
    hostile = Coded.of([json.dumps([HOSTILE])] * 6)
    bad = table.with_column("op", hostile).with_column("kShortName", Coded.of([HOSTILE] * 6))
    profile = pyprof.load(stored(tmp_path, bad, "a<b>.dict"))
    for shown in (profile, profile.where("op == '<i>' or dir != '<i>'"), profile.summary()):
        page = shown._repr_html_()
        assert "<script" not in page and "<i>" not in page and "<b>.dict" not in page and "\x1b" not in page
        assert "$x$" not in page and "\\(" not in page  # MathJax would set them
        assert "background" not in page and "#" not in page.replace("&#", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in profile._repr_html_()
    assert "a&lt;b&gt;.dict" in profile._repr_html_()
    assert repr(profile) == "<pyprof.Profile a<b>.dict: 6 rows, 0.0022 ms>"


def test_names_that_unicode_does_not_allow_do_no_harm(tmp_path):
    half = Coded.of([json.dumps(["\ud800x"])] * 6)
    profile = pyprof.load(stored(tmp_path, sample().with_column("op", half)))
    assert len(profile.ops) == 3
    profile._repr_html_().encode()
    profile.timeline(dpi=40)._repr_png_()


@settings(max_examples=25)
@given(readable_tables())
def test_any_table_has_frames_words_and_figures_or_says_why_not(table):
    for key in ("kDuration", "start", "apiStart", "apiDuration", "bytes"):  # sums stay within 64 bits
        values = table.ints(key)
        table = table.with_column(key, np.where(values == NULL, NULL, values % 10**6))
    profile = Profile(Captured((("x<y>", None),), (), table, annotate(table), None))
    for each in (profile, profile.where("sil > 0"), profile.where("op == 'none of these'")):
        assert len(each.kernels) == len(each)
        assert each.layers["own"].sum() == each.ops["time"].sum() == each.totals.time_ns
        assert len(each.steps) <= len(each) and len(each.advice) == len(each.cards)
        each._repr_html_().encode()
        for figure in ("roofline", "layers", "phases", "timeline"):
            with contextlib.suppress(PyprofError):
                each.plot(figure, dpi=30)._repr_png_()
    str(profile.summary()).encode()


def test_the_summary_is_the_commands(profile, root):
    lenet = str(root / "tests" / "golden" / "h200_lenet_init.sqlite.gz")
    done = subprocess.run(
        [sys.executable, "-m", "pyprof", "prof", "--summary", "-w", "90", lenet],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert pyprof.load(lenet).summary().text(90) == done.stdout


def test_the_summary_of_some_steps_has_their_advice(root):
    profile = pyprof.load(root / "tests" / "golden" / "h200_gpt2_init.sqlite.gz")
    all_of_it, first = profile.summary(), profile.where("step == 0").summary()
    assert first.advice == all_of_it.advice  # the capture has one step
    assert first.advice[1].startswith("Pad the vocabulary from 50257 to 50264: saves ")
    assert f"<b>{first.advice[0]}</b>" in first._repr_html_()


def test_in_a_notebook_the_summary_is_a_text_still(profile, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)  # rich would display each line, and write none
    assert str(profile.summary()).startswith("6 kernels on ")


def test_figures_show_themselves(profile):
    assert profile.timeline(dpi=40)._repr_png_().startswith(b"\x89PNG")
    assert profile.roofline(dpi=40, dark=True).get_facecolor() != profile.roofline(dpi=40).get_facecolor()


def test_report_writes_the_page_and_never_over_another(profile, tmp_path):
    page = profile.report(tmp_path / "r.html", title="mine")
    assert "<title>mine</title>" in page.read_text()
    with pytest.raises(PyprofError, match="exists"):
        profile.report(page)
    few = profile.where("op == 'linear'").report(page, force=True).read_text()
    assert "linear" in few and "relu_kernel" not in few


# Real captures, against SQLite


@pytest.fixture(scope="module")
def captures(root, tmp_path_factory):
    opened = contextlib.ExitStack()

    def both(name):
        file = tmp_path_factory.mktemp("captures") / "net.sqlite"
        with gzip.open(root / "tests" / "golden" / name) as packed, file.open("wb") as out:
            shutil.copyfileobj(packed, out)
        return pyprof.load(file), opened.enter_context(contextlib.closing(sqlite3.connect(file)))

    with opened:
        yield both


@pytest.mark.parametrize(
    "name",
    [
        "h200_gpt2_step.sqlite.gz",
        "h200_gpt2_init.sqlite.gz",
        "h200_lenet_init.sqlite.gz",
        "h200_resnet50_init.sqlite.gz",
    ],
)
def test_times_are_those_of_the_database(name, captures):
    profile, database = captures(name)
    made = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    kinds = made & {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")}
    sums = [database.execute(f"SELECT count(*), sum(end - start) FROM {kind}").fetchone() for kind in kinds]
    count, took = (sum(each[i] for each in sums) for i in (0, 1))
    kernels = profile.kernels
    assert (len(kernels), kernels["sil"].sum()) == (count, took)
    assert profile.ops["time"].sum() == profile.ops["time"].sum() == profile.layers["own"].sum() == took
    assert profile.ops["count"].sum() == count
    by_name = dict(
        database.execute(
            "SELECT value, sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
            " JOIN StringIds ON id = CASE WHEN shortName IN"
            " (SELECT id FROM StringIds WHERE value IN ('Kernel', 'Kernel2', 'device_kernel', 'kentry'))"
            " THEN demangledName ELSE shortName END GROUP BY value"
        ).fetchall()
    )
    mine = kernels[kernels["kind"] == "kernel"].groupby("kernel", observed=True)["sil"].sum()
    assert {key: int(ns) for key, ns in mine.items()} == by_name
    grids = database.execute(
        "SELECT gridX || ',' || gridY || ',' || gridZ FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
    )
    shown = kernels[kernels["kind"] == "kernel"].sort_values("start", kind="stable")["grid"]
    assert shown.tolist() == [grid for (grid,) in grids]


def test_advice_is_that_of_the_command_and_follows_the_rows(captures, root):
    profile, _ = captures("h200_gpt2_init.sqlite.gz")
    command = ["-m", "pyprof", "prof", "--advise", "--json", "tests/golden/h200_gpt2_init.sqlite.gz"]
    lines = subprocess.run([sys.executable, *command], cwd=root, capture_output=True, check=True)
    told = json.loads(lines.stdout)["changes"]
    frame = profile.advice
    assert frame["rule"].tolist() == [change["rule"] for change in told] and len(told) >= 2
    assert frame["saved_ms"].tolist() == [change["saved_ms"] for change in told]
    assert frame.attrs["units"]["saved_ms"] == "ms" and all(frame.attrs["meanings"].values())
    assert "alignment" in profile.where("layer like '*head*'").advice["rule"].tolist()
    assert "alignment" not in profile.where("op == 'layer_norm'").advice["rule"].tolist()


def test_pyprofs_own_table_is_read(data):
    profile = pyprof.load(data / "pyprof_golden" / "net.dict")
    assert len(profile) == 284 and profile.kernels["sil"].sum() == profile.totals.time_ns
    assert len(profile.steps) == 0  # no start times
    profile._repr_html_()


# Plans


def test_a_plan_in_a_notebook(root):
    """A transformer layer in fp32 on an H200: 7.9 ms a step, and 2.18 were measured in mixed precision."""
    profile = pyprof.load(root / "tests" / "golden" / "advice" / "mixed.before.json.gz")
    plan = profile.plan(without="launch_bound")
    (row,) = plan.rows
    assert row["rule"] == "amp" and row["title"].startswith("Use mixed precision: saves ")
    assert row["low_ms"] <= row["ms"] <= row["high_ms"] and row["general"] is True
    assert "torch.autocast" in row["after"]
    assert list(plan.changes.columns) == list(row) and plan.changes.attrs["units"]["saved_ms"] == "ms"
    assert row["title"] in " ".join(str(plan).split()) and "<details>" in plan._repr_html_()
    assert profile.plan(with_=["tf32"], step_ms=9.0).numbers.now.ms == pytest.approx(9.0, rel=0.02)
    best = profile.cards[0]
    assert best.saved_ms == pytest.approx(row["saved_ms"], abs=1e-5)  # the same change, alone


def test_what_cannot_be_planned_says_why(root, tmp_path):
    profile = pyprof.load(root / "tests" / "golden" / "advice" / "mixed.before.json.gz")
    with pytest.raises(PyprofError, match="expected a whole run, found rows where op == 'linear'"):
        profile.where("op == 'linear'").plan()
    with pytest.raises(PyprofError, match="expected rules among alignment"):
        profile.plan(with_="nonsense")
    write_parquet(profile.table, tmp_path / "net.parquet")
    with pytest.raises(PyprofError, match="cannot be planned: a kernel table has no calls of the host"):
        pyprof.load(tmp_path / "net.parquet").plan()
