"""pyprof plot: what it writes, tells and refuses; and figures of real captures, none of whose words overlap."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import combinations

import pytest

import pyprof
from pyprof import cli as all_commands
from pyprof.errors import PyprofError
from pyprof.prof.plot import cli
from tests.answered import answer
from tests.prof.plot.test_numbers import peaks_file

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}


@pytest.fixture(scope="module")
def golden(root):
    return lambda name: str(root / "tests" / "golden" / name)


@pytest.mark.parametrize("form", MAGIC)
def test_the_suffix_is_the_format(form, golden, tmp_path, capsys):
    out = tmp_path / f"x.{form}"
    assert cli.main(["phases", golden("h200_lenet_init.sqlite.gz"), "-o", str(out)]) == 0
    assert out.read_bytes().startswith(MAGIC[form])
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"pyprof plot: wrote {out}: 59 rows, 0.2044 ms\n")


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_equal_figures_are_equal_files(form, golden, tmp_path):
    files = [tmp_path / f"{name}.{form}" for name in "ab"]
    for file in files:
        assert cli.main(["roofline", golden("h200_lenet_init.sqlite.gz"), "-q", "-o", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_text_stays_text_in_svg(golden, tmp_path):
    out = tmp_path / "x.svg"
    title = "<b>&amp; $x$ \x1b[31m"
    assert cli.main(["layers", golden("h200_lenet_init.sqlite.gz"), "-q", "-o", str(out), "--title", title]) == 0
    text = out.read_text()
    assert ">conv1</text>" in text and "&lt;b&gt;&amp;amp; $x$ ?[31m</text>" in text


def test_width_height_and_dpi_are_the_pictures(golden, tmp_path):
    out = tmp_path / "x.png"
    size = ["--width", "4", "--height", "3", "--dpi", "50", "--dark"]
    assert cli.main(["timeline", golden("h200_lenet_init.sqlite.gz"), "-q", "-o", str(out), *size]) == 0
    head = out.read_bytes()[16:24]
    assert (int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")) == (200, 150)


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["layers", "f", "-o", "x.png", "--by", "op"], "argument --by goes with roofline, not with layers"),
        (["growth", "f", "-o", "x.png", "--step", "1"], "argument --step goes with timeline, not with growth"),
        (["growth", "f", "-o", "x.png", "--peaks", "p"], "argument --peaks: growth takes a peaks.json, not a capture"),
        (
            ["growth", "f", "-o", "x.png", "--models", "m"],
            "argument --models: growth takes a peaks.json, not a capture",
        ),
        (["growth", "f", "g", "-o", "x.png"], "growth: expected one peaks.json, found several files"),
        (["phases", "f", "-o", "x.gif"], "expected a name that ends in .png, .svg, .pdf, found 'x.gif'"),
        (["phases", "f", "-o", "x.png", "--width", "900"], "expected inches, 2.5 to 60, found '900'"),
        (["phases", "f", "-o", "x.png", "--dpi", "nan"], "expected dots an inch, 20 to 1200, found 'nan'"),
        (["phases", "f", "-o", "x.png", "--where", "op = 1"], "argument --where: "),
        (["phases", "f"], "the following arguments are required: -o/--output"),
        (["pie", "f", "-o", "x.png"], "argument FIGURE: invalid choice: 'pie'"),
    ],
)
def test_wrong_usage_exits_with_2(argv, what, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(argv)
    assert done.value.code == 2
    assert what in capsys.readouterr().err


def test_nothing_to_show_is_one_line_and_no_file(golden, tmp_path, capsys):
    file, out = golden("h200_lenet.sqlite.gz"), tmp_path / "x.png"
    assert cli.main(["layers", file, "-o", str(out)]) == 1
    assert capsys.readouterr().err == (
        f"pyprof plot: {file}: there are no layers: the capture names none (capture with pyprof.init() or pyprof run, "
        "or torch.profiler's with_modules=True)\n"
    )
    assert not out.exists()


@pytest.mark.parametrize("figure", ["roofline", "layers", "phases", "timeline"])
def test_a_condition_that_no_row_fulfils_is_why_there_is_nothing_to_show(figure, golden, tmp_path, capsys):
    """The capture has layers, steps, times and counts."""
    file = golden("h200_lenet_init.sqlite.gz")
    assert cli.main([figure, file, "-o", str(tmp_path / "x.png"), "--where", "op == 'nope'"]) == 1
    assert capsys.readouterr().err == f"pyprof plot: {file}: there is no row for which op == 'nope' is true\n"


def test_a_file_that_is_there_stays(golden, tmp_path, capsys):
    out = tmp_path / "x.png"
    out.write_text("mine")
    assert cli.main(["phases", golden("h200_lenet.sqlite.gz"), "-o", str(out)]) == 1
    assert "exists; give --force" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_without_matplotlib_one_line_says_what_to_install(golden, root, tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; from pyprof.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["plot", "phases", golden("h200_lenet.sqlite.gz"), "-o", str(tmp_path / "x.png")]
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=root, capture_output=True, text=True)
    expected = "the package matplotlib is not installed for this Python (install pyprof: pip install '.[plot]')"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pyprof plot: {expected}\n")
    assert list(tmp_path.iterdir()) == []


# --json


@pytest.mark.parametrize("figure", ["roofline", "layers", "phases", "timeline"])
def test_json_tells_the_file_and_the_numbers_drawn(figure, golden, tmp_path, capfdbinary):
    file, out = golden("h200_lenet_init.sqlite.gz"), str(tmp_path / "x.png")
    assert cli.main([figure, file, "-o", out, "--json"]) == 0
    told = capfdbinary.readouterr()
    found = answer(told.out, "plot", "plot")
    assert told.err == b""
    assert (found["figure"], found["rows"]) == (figure, 59)
    assert found["output"] == {"name": out, "bytes": (tmp_path / "x.png").stat().st_size}
    assert found["input"][0]["name"] == file and found["input"][0]["profiler"].startswith("nsys ")
    numbers = found["numbers"]
    if figure == "roofline":
        assert numbers["dots"][0].keys() >= {"name", "ai", "flop_per_s"} and numbers["device"] == "NVIDIA H200"
    if figure == "timeline":
        boxes = {lane["name"]: lane["boxes"] for lane in numbers["lanes"]}
        assert boxes["stream 7"] == boxes["launches"] == 59


def test_json_of_growth(tmp_path, capfdbinary):
    assert cli.main(["growth", str(peaks_file(tmp_path)), "-o", str(tmp_path / "x.svg"), "--json"]) == 0
    found = answer(capfdbinary.readouterr().out, "plot", "plot")
    assert found["rows"] == 3
    assert [curve["points"] for curve in found["numbers"]["memory"]] == [[[65536, 1e11], [1 << 30, 4e12]]]


def test_an_error_is_told_in_json_too(tmp_path, capfdbinary):
    out = tmp_path / "x.png"
    assert all_commands.main(["plot", "phases", str(tmp_path / "none.sqlite"), "-o", str(out), "--json"]) == 1
    found = answer(capfdbinary.readouterr().out, "error", "plot")
    assert found["error"]["type"] == "InputError"


# Real captures

CAPTURES = (
    "h200_gpt2_step.sqlite.gz",
    "h200_gpt2_init.sqlite.gz",
    "h200_resnet50_init.sqlite.gz",
    "h200_lenet_init.sqlite.gz",
    "h200_resnet50_bf16.json.gz",
    "h200_gpt2_cudagraph_node.sqlite.gz",
)


@pytest.fixture(scope="module")
def profiles(golden):
    return {name: pyprof.load(golden(name)) for name in CAPTURES}


@pytest.mark.parametrize("name", CAPTURES)
def test_the_roofline_of_a_capture_is_read(name, profiles):
    """Within the axes, and no word over another: of names beside dots and of roofs."""
    for by in ("op", "kernel"):
        figure = profiles[name].roofline(by=by)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        inside = axes.get_window_extent()
        straight = [text for text in axes.texts if text.get_rotation() == 0]
        boxes = [(text.get_text(), text.get_window_extent()) for text in straight]
        assert len(boxes) >= 2
        for text, box in boxes:
            roof = "FLOP/s" in text  # their words stand at the right
            assert (box.x0 >= inside.x1) if roof else (box.x0 >= inside.x0 - 1 and box.x1 <= inside.x1 + 1), text
            assert box.x1 <= figure.bbox.x1 and box.y0 >= figure.bbox.y0 and box.y1 <= figure.bbox.y1, text
        over = [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.shrunk(0.98, 0.9).overlaps(other)]
        assert over == []


def connected(name, root, tmp_path):
    import gzip

    file = tmp_path / "net.sqlite"
    file.write_bytes(gzip.decompress((root / "tests" / "golden" / name).read_bytes()))
    return closing(sqlite3.connect(file))


def test_the_timeline_has_every_kernel_of_the_database(root, tmp_path, profiles):
    with connected("h200_gpt2_step.sqlite.gz", root, tmp_path) as database:
        streams = database.execute(
            "SELECT streamId, count(*), sum(took) FROM "
            "(SELECT streamId, end - start AS took FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "UNION ALL SELECT streamId, end - start FROM CUPTI_ACTIVITY_KIND_MEMSET) GROUP BY streamId"
        ).fetchall()
    shown, _ = profiles["h200_gpt2_step.sqlite.gz"].drawn("timeline")
    drawn = [(lane.name, len(lane.start_ns), int(lane.dur_ns.sum())) for lane in shown.lanes if lane.kind == "stream"]
    assert (
        drawn
        == [(f"stream {stream}", count, took) for stream, count, took in streams]
        == [("stream 7", 1214, 23783537)]
    )


def test_a_figure_of_some_rows_shows_these(profiles):
    linear = profiles["h200_gpt2_init.sqlite.gz"].where("op == 'linear'")
    shown, _ = linear.drawn("roofline")
    assert {dot.name for dot in shown.dots} == {"linear", "linear, backward"}
    assert shown.rows_ns == linear.totals.time_ns


def test_what_is_no_figure_and_no_option_is_told(profiles):
    profile = profiles["h200_lenet_init.sqlite.gz"]
    with pytest.raises(PyprofError, match="expected one of roofline, layers, phases, timeline, found 'pie'"):
        profile.plot("pie")
    with pytest.raises(PyprofError, match="phases: no option 'by'; there are width, height, dpi, dark, title"):
        profile.plot("phases", by="op")


def test_peaks_plot_draws_the_same_growth(tmp_path):
    from pyprof.benchmark import peaks

    file = peaks_file(tmp_path)
    peaks.plot(json.loads(file.read_text()), str(tmp_path / "a.svg"), False)
    assert cli.main(["growth", str(file), "-q", "-o", str(tmp_path / "b.svg")]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
