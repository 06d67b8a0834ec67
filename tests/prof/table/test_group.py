"""--group, --sort, --top, --layer-depth: on a table worked out by hand, and on captures counted independently."""

import csv
import io
import json
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from pyprof.parse import cli as parse_cli
from pyprof.prof import cli
from pyprof.prof.table.query import _ranks
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.attribution import LAUNCH_ALONE
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.netdict import write_netdict

ROOT = '["net", "net.h.0", "net.h.0.fc"]'


def sample() -> Table:
    """Two products of 2 x 3 by 3 x 4 (48 flop, 104 bytes), a relu of 8 floats (0 flop, 64 bytes), one unknown."""
    return Table(
        5,
        {
            "kShortName": Coded.of(["gemm", "relu_kernel", "gemm", "odd", "gemm"]),
            "kDuration": np.array([400, 100, 200, 300, 1000]),
            "layer": Coded.of([ROOT, '["net", "net.h.1"]', ROOT, "", '["net", "net.h.1"]']),
            "dir": Coded.of(["fprop", "fprop", "bprop", "", "fprop"]),
            "op": Coded.of(['["linear"]', '["relu"]', '["linear"]', "", '["custom"]']),
            "mod": Coded.of(['["torch"]', '["torch"]', '["torch"]', "", '["mine"]']),
            "kind": Coded.of(["kernel"] * 5),
            "start": np.array([0, 500, 700, 1000, 2000]),
            "opId": np.array([1, 2, 3, NULL, 4]),
            "aten": Coded.of(["aten::mm", "aten::relu", "aten::mm", "", "mine::op"]),
            "sizes": Coded.of(["[[2, 3], [3, 4]]", "[[8]]", "[[2, 3], [3, 4]]", "", "[[9]]"]),
            "dtypes": Coded.of(['["float32", "float32"]', '["float32"]', '["float32", "float32"]', "", '["float16"]']),
        },
    )


@pytest.fixture
def netdict(tmp_path):
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(sample(), out)
    return str(tmp_path / "net.dict")


def run(capfdbinary, *argv: str) -> list[dict[str, str]]:
    assert cli.main(["-q", "--csv", *argv]) == 0
    return list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode(), newline="")))


def test_groups_come_longest_first_with_sums_shares_and_rates(netdict, capfdbinary):
    assert run(capfdbinary, "--group", "op", netdict) == [
        {"Op": "custom", "Count": "1", "Time(ns)": "1000", "Share%": "50", "FLOPs": "", "Bytes": "", "TFLOP/s": "",
         "GB/s": "", "NoModel%": "100", "NoBytes%": "100"},
        {"Op": "linear", "Count": "2", "Time(ns)": "600", "Share%": "30", "FLOPs": "96", "Bytes": "208",
         "TFLOP/s": "0.00016", "GB/s": "0.3467", "NoModel%": "0", "NoBytes%": "0"},  # 96 / 600 ns = 0.16 GFLOP/s
        {"Op": "na", "Count": "1", "Time(ns)": "300", "Share%": "15", "FLOPs": "", "Bytes": "", "TFLOP/s": "",
         "GB/s": "", "NoModel%": "100", "NoBytes%": "100"},
        {"Op": "relu", "Count": "1", "Time(ns)": "100", "Share%": "5", "FLOPs": "0", "Bytes": "64", "TFLOP/s": "0",
         "GB/s": "0.64", "NoModel%": "0", "NoBytes%": "0"},
    ]  # fmt: skip


def test_rates_of_a_group_are_of_its_counted_rows_if_these_are_most_of_its_time(netdict, capfdbinary):
    (fprop,) = run(capfdbinary, "--where", "dir == 'fprop'", "--group", "dir", netdict)
    assert (fprop["Count"], fprop["Time(ns)"], fprop["Share%"], fprop["FLOPs"]) == ("3", "1500", "100", "48")
    assert (fprop["TFLOP/s"], fprop["NoModel%"]) == ("", "66.67")  # 1000 of 1500 ns
    where = "sil in (400, 300, 200)"  # 96 flop in 600 ns, and 300 ns of the unknown
    (most,) = run(capfdbinary, "--where", where, "--group", "device", netdict)
    assert (most["TFLOP/s"], most["NoModel%"]) == ("0.00016", "33.33")
    (relu,) = run(capfdbinary, "--where", "sil in (100, 300)", "--group", "device", netdict)
    assert (relu["FLOPs"], relu["Bytes"], relu["TFLOP/s"]) == ("", "64", "")  # 0 and unknown is not 0


def test_bytes_have_their_own_share(tmp_path, capfdbinary):
    """A collective without sizes does 0 FLOPs and moves an unknown number of bytes: 300 of 700 ns."""
    table = sample().take(np.array([0, 3]))
    table = table.with_column("aten", Coded.of(["aten::mm", "nccl:all_gather"])).with_column("op", Coded.of(["", ""]))
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table.with_column("sizes", Coded.of(["[[2, 3], [3, 4]]", "[[8]]"])), out)
    (both,) = run(capfdbinary, "--group", "op", str(tmp_path / "net.dict"))
    assert (both["FLOPs"], both["NoModel%"]) == ("48", "0")
    assert (both["Bytes"], both["NoBytes%"]) == ("104", "42.86")


def test_ops_that_only_launched_have_amounts_and_no_rates(tmp_path, capfdbinary):
    """400 ns is the time in which the CPU launched the product, not that of the product."""
    table = sample().with_column("reason", Coded.of([LAUNCH_ALONE, "", "", "", ""]))
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table, out)
    groups = {row["Op"]: row for row in run(capfdbinary, "--group", "op", str(tmp_path / "net.dict"))}
    linear, relu = groups["linear"], groups["relu"]
    assert (linear["FLOPs"], linear["Bytes"], linear["TFLOP/s"], linear["GB/s"]) == ("96", "208", "", "")
    assert relu["GB/s"] == "0.64"


def test_several_keys_chosen_columns_and_a_sort(netdict, capfdbinary):
    argv = ("--group", "op,dir", "--sort", "op,-count", "-c", "dir,op,time", netdict)
    assert [tuple(row.values()) for row in run(capfdbinary, *argv)] == [
        ("fprop", "custom", "1000"), ("fprop", "linear", "400"), ("bprop", "linear", "200"), ("fprop", "relu", "100"),
        ("", "na", "300"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "order"),
    [
        ((), "12345"),
        (("--sort", "sil"), "23415"),
        (("--sort", "-sil"), "51432"),
        (("--sort=-sil",), "51432"),
        (("--sort", "flops,-sil"), "21354"),  # 0; 48, 48 by time; then unknown, by time
        (("--sort", "-flops"), "13245"),  # unknown last either way, equal ones in the input's order
        (("--sort", "dir"), "31254"),
        (("--top", "2"), "51"),
        (("--top", "2", "--sort", "idx"), "12"),
        (("--where", "dir == 'fprop'", "--top", "9"), "512"),
        (("--where", "sil > 250"), "145"),
        (("--where", "sil > 9e9"), ""),
    ],
)
def test_the_order_of_rows(netdict, capfdbinary, argv, order):
    assert "".join(row["Idx"] for row in run(capfdbinary, *argv, "-c", "idx", netdict)) == order


def test_numbers_in_texts_sort_by_value():
    layers = Coded.of(["h.10", "h.2", "", "g", "h.2.b", "9"])
    ranks, known = _ranks(layers)
    assert np.argsort(ranks[known]).tolist() == [4, 2, 1, 3, 0]  # 9, g, h.2, h.2.b, h.10, of those known
    assert known.tolist() == [True, True, False, True, True, True]


def test_layers_are_cut_to_a_depth(netdict, capfdbinary):
    groups = run(capfdbinary, "--group", "layer", "--layer-depth", "2", "-c", "layer,time", netdict)
    assert [tuple(group.values()) for group in groups] == [("net:h.1", "1100"), ("net:h.0", "600"), ("-", "300")]
    (group,) = run(capfdbinary, "--where", "layer == 'net'", "--group", "layer", "--layer-depth", "1", "-c",
                   "layer,count", netdict)  # fmt: skip
    assert tuple(group.values()) == ("net", "4")
    assert run(capfdbinary, "--top", "1", "-c", "layer", netdict) == [{"Layer": "net:net.h.1"}]  # as PyProf joined


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('["Qwen2Model_0", "Qwen2DecoderLayer_3"]', ("Qwen2Model_0", "Qwen2DecoderLayer_3")),
        ('["GPT", "h.0", "h.0.attn", "h.0.attn.c_attn"]', ("GPT", "h.0", "attn", "c_attn")),
        ('["encoder.3.mlp"]', ("encoder.3", "mlp")),
        ('["my range, v1.2"]', ("my range, v1.2",)),
        ('["0", "0.1"]', ("0", "1")),
        ("[]", ()),
        ("{}", ()),
        ('[1, "a"]', ("1", "a")),
    ],
)
def test_parts_of_a_layer(text, parts):
    assert layer_parts(text) == parts


def test_group_by_arguments_tells_shapes(netdict, capfdbinary):
    assert [row["Args"] for row in run(capfdbinary, "--group", "args", netdict)] == [
        "T=[(9)],float16", "T=[(2,3),(3,4)],float32", "", "T=[(8)],float32"]  # fmt: skip


def test_json_lines_have_numbers_and_null(netdict, capfdbinary):
    assert cli.main(["-q", "--jsonl", "-c", "idx,op,layer,flops,tflops", netdict]) == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert lines[0] == {
        "idx": 1,
        "op": "linear",
        "layer": "net:net.h.0:net.h.0.fc",
        "flops": 48,
        "tflops": 48 / 400 / 1e3,
    }
    assert lines[3] == {"idx": 4, "op": None, "layer": None, "flops": None, "tflops": None}


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a.csv", b'"Idx",'),
        ("a.jsonl", b'{"idx":1'),
        ("a.json", b'{"schema": "pyprof/kernels/1"'),
        ("a.txt", b"idx "),
    ],
)
def test_the_outputs_name_chooses_the_form(netdict, tmp_path, name, begin):
    assert cli.main(["-q", "-c", "idx,op", "-o", str(tmp_path / name), netdict]) == 0
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_parquet_has_types_units_and_nulls(netdict, tmp_path):
    path = tmp_path / "a.parquet"
    assert cli.main(["-q", "-c", "idx,op,sil,flops,tflops", "-o", str(path), netdict]) == 0
    table = pq.read_table(path)
    assert table.column("op").to_pylist() == ["linear", "relu", "linear", None, "custom"]
    assert table.column("flops").to_pylist() == [48, 0, 48, None, None]
    assert table.column("tflops").to_pylist() == [48 / 400 / 1e3, 0, 48 / 200 / 1e3, None, None]
    assert table.schema.field("sil").metadata[b"unit"] == b"ns"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--group", "oops"], "argument --group: 'oops' is no column; there are: idx, seq,"),
        (["--group", "op,op"], "argument --group: 'op' is named twice"),
        (["--group", "sol"], "argument --group: sol is measured"),
        (["--group", "op", "-c", "kernel"], "argument -c: 'kernel' is no column; there are: op, count, time,"),
        (["--group", "op", "--sort", "sil"], "argument --sort: 'sil' is no column; there are: op, count,"),
        (["--sort", "oops"], "argument --sort: 'oops' is no column"),
        (["--sort", "-"], "argument --sort: '' is no column"),
        (["--top", "0"], "argument --top: expected a number from 1 on, found '0'"),
        (["--layer-depth", "x"], "argument --layer-depth: expected a number"),
        (["--where", "sil.x > 1"], "argument --where: character 4: '.x > 1': expected one of =="),
        (["--json", "--csv"], "not allowed with argument"),
        (["--json", "--jsonl"], "not allowed with argument"),
        (["--summary", "--jsonl"], "argument --summary: it takes the table's place, and does not go with --jsonl"),
        (["--json", "-o", "x.parquet"], "argument -o: x.parquet is Parquet by its name"),
        (["--csv", "-o", "x.parquet"], "argument -o: x.parquet is Parquet by its name"),
        (["--summary", "--top", "3"], "argument --summary: it takes the table's place, and does not go with --top"),
    ],
)
def test_bad_usage_is_said_before_the_file_is_read(argv, words, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main([*argv, "there is no such file"])
    assert done.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["h200_gpt2_step", "h200_lenet"])
def test_groups_of_a_capture_are_those_of_a_plain_sum(root, tmp_path, capfdbinary, name):
    """Against a loop over the printed rows, in plain Python."""
    source = str(tmp_path / "net.dict")
    assert parse_cli.main(["-q", "-o", source, str(root / "tests" / "golden" / f"{name}.sqlite.gz")]) == 0
    rows = run(capfdbinary, "-c", "op,dir,sil,flops,bytes", source)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        mine = sums[row["Op"], row["Direction"]]
        for i, value in enumerate((1, int(row["Sil(ns)"]), int(row["FLOPs"] or 0), int(row["Bytes"] or 0))):
            mine[i] += value
    groups = run(capfdbinary, "--group", "op,dir", source)
    found = {
        (g["Op"], g["Direction"]): [int(g["Count"]), int(g["Time(ns)"]), int(g["FLOPs"] or 0), int(g["Bytes"] or 0)]
        for g in groups
    }
    assert found == dict(sums)
    assert sum(float(group["Share%"]) for group in groups) == pytest.approx(100, abs=0.1)
    times = [int(group["Time(ns)"]) for group in groups]
    assert times == sorted(times, reverse=True)
