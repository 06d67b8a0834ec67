"""Tables of Nsight Compute, of real runs and of hostile hands."""

import csv
import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.parse.ncu.range_cells import ranges
from pyprof.parse.ncu.reader import read
from pyprof.parse.ncu.report import Range
from tests.parse.ncu.ncu_table import LAUNCH, PUSHED, STARTED, launch, line, raw, write
from tests.paths import GOLDEN

TIME, READ = ("gpu__time_duration.sum", "ns"), ("dram__bytes_read.sum", "byte")
LENET = GOLDEN / "ncu" / "h200_lenet.raw.csv.gz"
LENET_DETAILS = GOLDEN / "ncu" / "h200_lenet_subset.details.csv.gz"
GPT2 = GOLDEN / "ncu" / "h200_gpt2_block.base.csv.gz"


def values(path: Path, metric: str) -> list[float]:
    column = read(path).metric(metric)
    assert column is not None
    return column.tolist()


def test_a_raw_page_in_scaled_units(tmp_path):
    """1.5 us are 1,500 ns; 2.25 Kbyte are 2,250 bytes."""
    rows = [[*launch(0), "1.50", "2.25"], [*launch(1, "relu", grid="(16384, 1, 1)"), "1,002.00", "n/a"]]
    table = raw([("gpu__time_duration.sum", "us"), ("dram__bytes_read.sum", "Kbyte")], rows)
    report = read(write(tmp_path, table))
    assert [(one.id, one.name, one.grid, one.block) for one in report.launches] == [
        (0, "gemm", (4, 1, 1), (128, 1, 1)), (1, "relu", (16384, 1, 1), (128, 1, 1)),
    ]  # fmt: skip
    first = report.launches[0]
    assert (first.process_id, first.process, first.host, first.context, first.stream, first.device, first.cc) == (
        7, "python", "127.0.0.1", 1, 7, 0, "9.0",
    )  # fmt: skip
    np.testing.assert_array_equal(report.metric("gpu__time_duration.sum"), [1500, 1_002_000])
    np.testing.assert_array_equal(report.metric("dram__bytes_read.sum"), [2250, math.nan])
    assert report.units == {"gpu__time_duration.sum": "ns", "dram__bytes_read.sum": "byte"}


@pytest.mark.parametrize(
    ("time", "size", "later"),
    [
        ("1.234", "5.678.901", "0,5"), ("1 234", "5 678 901", "0,5"), ("1\u202f234", "5\u202f678\u202f901", "0,5"),
        ("1,234", "5,678,901", "0.5"), ("1234", "5678901", "0.5"), ("1'234", "5'678'901", "0.5"),
    ],
)  # fmt: skip
def test_locales(time, size, later, tmp_path):
    """What separates thousands may only show in a later row: 1.234 is 1,234 there."""
    rows = [[*launch(0), time, size], [*launch(1), later, later]]
    path = write(tmp_path, raw([TIME, READ], rows))
    assert values(path, "gpu__time_duration.sum") == [1234, 0.5]
    assert values(path, "dram__bytes_read.sum") == [5678901, 0.5]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le+mark", "gzip"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings(encoding, newline, tmp_path):
    text = raw([TIME], [[*launch(0, "größe"), "5"]]).replace("\n", newline)
    path = tmp_path / "report.csv"
    path.write_bytes({
        "gzip": lambda: gzip.compress(text.encode()),
        "utf-16-le+mark": lambda: b"\xff\xfe" + text.encode("utf-16-le"),
    }.get(encoding, lambda: text.encode(encoding))())  # fmt: skip
    assert read(path).launches[0].name == "größe"
    assert values(path, "gpu__time_duration.sum") == [5]


def test_log_lines_and_the_programs_output_are_left_out(tmp_path):
    """ncu's log, a progress bar without a line's end before the header, and prints between the rows."""
    table = raw([TIME], [[*launch(0), "5"], [*launch(1), "6"]])
    header, units, first, second, _ = table.split("\n")
    text = "\n".join(["==PROF== Connected to process 7 (/usr/bin/python)", "step 1, loss 0.5",
                      "100%|####| done" + header, "==PROF== Profiling", units, "0,1,2", first,
                      '"quoted", he said', "loss: 3", second, "==PROF== Disconnected from process 7", ""])  # fmt: skip
    report = read(write(tmp_path, text))
    assert [one.id for one in report.launches] == [0, 1]
    assert report.noise == 7


@pytest.mark.parametrize("first", ["[rank0] step 1", "{'loss': 0.5}"])
def test_what_the_program_prints_first_may_look_like_json(first, tmp_path):
    report = read(write(tmp_path, raw([TIME], [[*launch(0), "5"]], before=f"{first}\n")))
    assert (len(report), report.noise) == (1, 1)


def test_rows_of_one_launch_are_united(tmp_path):
    """A report with a table per pass: each has other metrics of the same kernels."""
    one = raw([TIME, READ], [[*launch(0), "5", "n/a"], [*launch(1), "7", ""]])
    two = raw([TIME, READ], [[*launch(0), "6", "32"], [*launch(1), "nan", "64"]])
    report = read(write(tmp_path, one + "==PROF== next pass\n" + two))
    assert len(report) == 2
    assert report.metric("gpu__time_duration.sum").tolist() == [5, 7]
    assert report.metric("dram__bytes_read.sum").tolist() == [32, 64]
    assert report.merged == 2


def test_equal_numbers_of_two_processes_are_two_launches(tmp_path):
    table = raw([TIME], [[*launch(0, pid=7), "5"], [*launch(0, pid=8), "6"]])
    assert values(write(tmp_path, table), "gpu__time_duration.sum") == [5, 6]


def test_a_failed_replay_is_kept_and_unknown(tmp_path):
    report = read(write(tmp_path, raw([TIME, READ], [[*launch(0), "5", "1"], [*launch(1), "nan", "n/a"]])))
    assert report.failed.tolist() == [False, True]
    assert np.isnan(report.metric("dram__bytes_read.sum")[1])


def test_a_details_page(tmp_path):
    """Labels become metrics, by their unit; a rule's row has none and is no launch."""
    names = [*LAUNCH, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Description"]
    rows = [
        ["GPU Speed Of Light Throughput", "Memory Throughput", "%", "61.84"],
        ["Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "196.45"],
        ["GPU Speed Of Light Throughput", "Duration", "ms", "21.06"],
        ["SpeedOfLight", "", "", "", "SOLBottleneck", "Look at ""L2"" first"],
        ["Command line profiler metrics", "dram__bytes.sum", "Mbyte", "4.00"],
        ["Own", "Something Else", "Kinst", "3.00"],
    ]  # fmt: skip
    text = "\n".join([line(names), *(line([*launch(0), *row]) for row in rows)])
    report = read(write(tmp_path, text))
    assert len(report) == 1
    assert {name: column.tolist() for name, column in report.metrics.items()} == {
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": [61.84],
        "dram__bytes.sum.per_second": [pytest.approx(196.45e9)],
        "gpu__time_duration.sum": [pytest.approx(21.06e6)],
        "dram__bytes.sum": [4e6],
        "Own: Something Else": [3000],
    }


MARKER = (
    '{"v":1,"op":"conv2d","args":[{"name":"a","type":"tensor","shape":[1,2]},{"value":""}],"trace":["a.py:1","b.py:2"]}'
)


@pytest.mark.parametrize("doubled", [False, True], ids=["as ncu prints it", "as CSV should be"])
@pytest.mark.parametrize("started", ["", '1  ""<default domain>:epoch 1:none:none:none:none:none:none"" '])
def test_ranges_with_quotation_marks_of_their_own(doubled, started, tmp_path):
    text = MARKER.replace('"', '""') if doubled else MARKER
    pushed = (
        '97  ""<default domain>:layer:net.0:none:none:RGB:0xff:REGISTERED:layer:net.0""  '
        f'""<default domain>:{text}:none:none:RGB:0xff:REGISTERED:{text}""  '
        '""NCCL:aten::add, sizes = [[1, 2]]:none:none:none:none:none:none"" '
    )
    header = line([*LAUNCH[:4], PUSHED, STARTED, *LAUNCH[4:], *TIME[:1]])
    cells = launch(0, "void add<float, 'x'>(int)")
    row = line([*cells[:4], pushed, started, *cells[4:], "1,234.5"])
    report = read(write(tmp_path, f"{header}\n{line([*[''] * 13, 'ns'])}\n{row}\n"))
    assert report.launches[0].ranges[:3] == (
        Range("layer:net.0"), Range(MARKER), Range("aten::add, sizes = [[1, 2]]", "NCCL"),
    )  # fmt: skip
    assert report.launches[0].ranges[3:] == ((Range("epoch 1", "", False),) if started else ())
    assert (report.launches[0].name, report.launches[0].grid) == ("void add<float, 'x'>(int)", (4, 1, 1))
    assert report.metric("gpu__time_duration.sum").tolist() == [1234.5]


def test_a_range_over_two_lines(tmp_path):
    header = line([*LAUNCH[:4], PUSHED, STARTED, *LAUNCH[4:], *TIME[:1]])
    cells = launch(0)
    row = line([*cells[:4], '9  ""<default domain>:one\ntwo "x:none:none:none:none:none:none"" ', "", *cells[4:], "5"])
    report = read(write(tmp_path, f"{header}\n{line([*[''] * 13, 'ns'])}\n{row}\n"))
    assert report.launches[0].ranges == (Range('one\ntwo "x'),)


def test_a_message_of_its_own_ends_the_text_where_types_say_so():
    assert ranges('1 "CCCL:cub::Sum:none:none:none:none:none:none"') == (Range("cub::Sum", "CCCL"),)
    assert ranges("0:<default domain>:compute:profile:none:none:none:none:none:none") == (Range("compute:profile"),)
    assert ranges("") == ()


def test_the_range_before_a_renamed_kernel_is_taken_off():
    """--print-nvtx-rename kernel: "aten::embedding, seq = 151, op_id = ..., .../void at::native::vectorized_..."."""
    with gzip.open(GPT2, "rt", encoding="utf-8") as lines:
        text = lines.read()
    assert "]/void at::native::vectorized_gather_kernel<(int)16, long>(char *" in text
    names = [one.name for one in read(GPT2).launches]
    assert names[0].startswith("void at::native::vectorized_gather_kernel<(int)16, long>(char *")
    assert not [name for name in names if "op_id" in name]


# ----- real reports -----


def independently(path: Path, metric: str) -> list[float]:
    """The metric's column, counted from the row's end: what stands before it is full of quotation marks."""
    with gzip.open(path, "rt", encoding="utf-8") as packed:
        lines = packed.read().split("\n")
    header = next(csv.reader([lines[0]]))
    back = header.index(metric) - len(header)
    rows = [text for text in lines[2:] if text]
    return [float(text.removesuffix('"').rsplit('","', -back)[back].strip('"').replace(",", "")) for text in rows]


def test_every_kernel_of_lenet_on_an_h200():
    report = read(LENET)
    assert (len(report), report.noise, report.unread) == (54, 0, 0)
    assert {(one.device_name, one.cc, one.process) for one in report.launches} == {("NVIDIA H200", "9.0", "python3.12")}
    assert report.metric("gpu__time_duration.sum").tolist() == pytest.approx(
        [1e3 * us for us in independently(LENET, "gpu__time_duration.sum")]
    )
    assert report.metric("smsp__inst_executed.sum").tolist() == independently(LENET, "smsp__inst_executed.sum")
    assert [each.text for each in report.launches[0].ranges[:2]] == ["layer:LeNet", "layer:conv1"]
    assert report.launches[0].ranges[2].text.startswith('{"v":1,"mod":"torch.nn.functional","op":"conv2d","args":[{"')
    assert report.launches[0].ranges[2].text.endswith('"examples/lenet.py:34"]}')
    assert report.launches[0].ranges[-1].text.startswith("aten::cudnn_convolution, op_id = 677, sizes = [[32, 1, 28")
    assert all(each.nested for one in report.launches for each in one.ranges)


def test_a_details_page_of_an_h200():
    """Twelve of LeNet's kernels. A row has one metric, the fourth field from its end, or the third before a comma."""
    with gzip.open(LENET_DETAILS, "rt", encoding="utf-8") as lines:
        rows = [text for text in lines if '"GPU Speed Of Light Throughput","Duration","us","' in text]
    report = read(LENET_DETAILS)
    assert len(report) == len(rows) == 12
    wanted = [1e3 * float(text.rsplit('"us","', 1)[1].partition('"')[0]) for text in rows]
    assert report.metric("gpu__time_duration.sum").tolist() == pytest.approx(wanted)
    assert (report.launches[0].grid, report.launches[0].ranges[1]) == ((1, 100, 1), Range("layer:conv2"))


# ----- hostile input -----


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_every_cut_inside_a_row_is_refused_or_leaves_whole_rows(tmp_path):
    """Cut anywhere: either a line that says so, or only whole rows with their own values."""
    text = raw([TIME, READ], [[*launch(0), "5,000", "1.5"], [*launch(1), "6,000", "2.5"]], before="==PROF== x\n")
    for size in range(len(text)):
        path = write(tmp_path, text[:size])
        try:
            report = read(path)
        except InputError:
            continue
        assert report.metric("gpu__time_duration.sum").tolist() == [5000, 6000][: len(report)]
        assert text[:size].rstrip("\n").count("\n") == 2 + len(report)  # ncu's line, header and units


def test_what_is_not_from_ncu(tmp_path):
    assert "found an empty file" in refused(write(tmp_path, ""))
    assert "found no kernels in it" in refused(write(tmp_path, "a,b\n1,2\n"))
    assert "found a binary file" in refused(write(tmp_path, "abc\0"))
    for capture in ("SQLite format 3\0", '{"kShortName": "a"}', "{'kShortName': 'a'}", '[{"ph": "X"}]', "PAR1"):
        path = write(tmp_path, capture, "net.dict")
        assert "--ncu joins a report to it (prof.py --ncu FILE net.dict)" in refused(path)
    assert "found a table without kernels" in refused(write(tmp_path, raw([TIME], [])))
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert "ncu's error: ERR_NVGPUCTRPERM" in refused(write(tmp_path, f"==PROF== Connected\n{error}\n"))
    summary = '"Process ID","Process Name","Kernel Name","Invocations","Metric Name"\n"1","a","b","2","c"\n'
    assert "--print-summary" in refused(write(tmp_path, summary))
    assert "cannot be read" in refused(tmp_path / "missing.csv")


def test_a_line_without_end(tmp_path):
    path = tmp_path / "report.csv"
    path.write_bytes(gzip.compress(b"\xff" * (17 << 20)))
    assert "lines of at most 16 MiB" in refused(path)


def test_a_table_without_names(tmp_path):
    path = write(tmp_path, '"ID","Process ID","Kernel"\n"0","1","a"\n')
    assert "expected a column Kernel Name" in refused(path)


@pytest.mark.parametrize("name", ["AveryClapp+ESMM-Research__metrics", "brycelelbach+nsightful__tests__copy_blocked"])
def test_public_details_pages(name, data):
    """Against the csv module: these have no ranges, so that it reads them right."""
    path = data / "ncu" / f"{name}.details.csv"
    with path.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["Metric Name"]]
    report = read(path)
    assert [one.name for one in report.launches] == [
        name for _, name in dict.fromkeys((row["ID"], row["Kernel Name"]) for row in rows)
    ]
    wanted = [float(row["Metric Value"].replace(",", "")) for row in rows
              if row["Metric Name"] in ("Duration", "gpu__time_duration.sum")]  # fmt: skip
    assert report.metric("gpu__time_duration.sum").tolist() == wanted  # in ns in both


def test_four_products_on_an_h200(data):
    report = read(data / "ncu" / "h200_four_gemms.raw.csv")
    assert (len(report), report.noise) == (4, 3)
    assert report.metric("dram__bytes_read.sum").tolist() == [81332480, 289548288, 224152064, 67121152]
    assert report.metric("gpu__time_duration.sum").tolist() == [176896, 2678368, 345792, 30976]
    assert {one.device_name for one in report.launches} == {"NVIDIA H200"}


# ----- tables that people have changed -----


def test_a_table_that_a_data_frame_wrote(tmp_path):
    """Quotation marks only where they are needed, a float for what was missing, no row of units."""
    text = (
        "ID,Process ID,Kernel Name,Block Size,Grid Size,gpu__time_duration.sum\n"
        '0,7,gemm,"(128, 1, 1)","(4, 1, 1)",5.0\n'
        '1,7,"void add<float, 2>(int)","(64, 1, 1)","(9, 1, 1)",\n'
    )
    report = read(write(tmp_path, text))
    assert [(one.id, one.name, one.grid, one.block) for one in report.launches] == [
        (0, "gemm", (4, 1, 1), (128, 1, 1)),
        (1, "void add<float, 2>(int)", (9, 1, 1), (64, 1, 1)),
    ]
    np.testing.assert_array_equal(report.metric("gpu__time_duration.sum"), [5, np.nan])


@pytest.mark.parametrize("between", [";", "\t"])
def test_a_table_that_a_spreadsheet_wrote(between, tmp_path):
    rows = [
        ["ID", "Process ID", "Kernel Name", "Grid Size", "gpu__time_duration.sum", "dram__bytes_read.sum"],
        ["", "", "", "", "ms", "Mbyte"],
        ["0", "7", "gemm", "(4, 1, 1)", "1,5", "1.234,5"],
    ]
    report = read(write(tmp_path, "\n".join(between.join(row) for row in rows)))
    assert report.metric("gpu__time_duration.sum").tolist() == [1.5e6]
    assert report.metric("dram__bytes_read.sum").tolist() == [1234.5e6]
    assert report.launches[0].grid == (4, 1, 1)


@pytest.mark.parametrize("header", ["gpu__time_duration.sum [us]", "gpu__time_duration.sum (us)"])
def test_units_in_the_header(header, tmp_path):
    text = f'"ID","Process ID","Kernel Name","{header}"\n"0","7","gemm","1.5"\n'
    assert values(write(tmp_path, text), "gpu__time_duration.sum") == [1500]


def test_a_raw_page_of_the_oldest_versions(tmp_path):
    """nv-nsight-cu-cli 2019: a row for each metric, no grid, block or device, which are metrics of the launch."""
    names = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Section Name",
             "Metric Name", "Metric Unit", "Metric Value"]  # fmt: skip
    rows = [("gpu__time_duration.sum", "usecond", "2.50"), ("launch__grid_dim_x", "", "4"),
            ("launch__grid_dim_y", "", "1"), ("launch__grid_dim_z", "", "1"),
            ("device__attribute_display_name", "", "Tesla V100-SXM2-16GB"),
            ("device__attribute_compute_capability_major", "", "7"),
            ("device__attribute_compute_capability_minor", "", "0")]  # fmt: skip
    lines = [line(names), *(line(["0", "7", "a.out", "127.0.0.1", "gemm", "1", "7", "", *row]) for row in rows)]
    (launch_,) = read(write(tmp_path, "\n".join(lines))).launches
    assert (launch_.grid, launch_.device_name, launch_.cc) == ((4, 1, 1), "Tesla V100-SXM2-16GB", "7.0")


def test_labels_with_their_metric(tmp_path):
    """--print-metric-name label-name"""
    names = [*LAUNCH, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    row = line([*launch(0), "GPU Speed Of Light Throughput", "Duration (gpu__time_duration.sum)", "us", "1.50"])
    assert values(write(tmp_path, f"{line(names)}\n{row}\n"), "gpu__time_duration.sum") == [1500]


def test_instances_of_a_metric(tmp_path):
    """--print-metric-instances values: the total, then each instance."""
    table = raw([("sm__cycles_active.avg", "cycle")], [[*launch(0), "1,024.50 (0: 1,000; 1: 1,049)"]])
    assert values(write(tmp_path, table), "sm__cycles_active.avg") == [1024.5]
