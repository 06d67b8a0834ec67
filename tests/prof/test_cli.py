"""prof.py as its users meet it: options, columns, the three forms, the line on standard error, broken input."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pyprof.prof import cli
from pyprof.prof.table.columns import COLUMNS, DEFAULT
from pyprof.prof.table.totals import totals
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.netdict import write_netdict
from pyprof.table.parquet import write_parquet

PYPROFS = [
    "idx", "seq", "altseq", "tid", "layer", "trace", "dir", "sub", "mod", "op",
    "kernel", "params", "sil", "tc", "device", "stream", "grid", "block", "flops", "bytes",
]  # fmt: skip
HEADERS = {  # of PyProf's prof/output.py
    "idx": "Idx", "seq": "SeqId", "altseq": "AltSeqId", "tid": "TId", "layer": "Layer", "trace": "Trace",
    "dir": "Direction", "sub": "Sub", "mod": "Module", "op": "Op", "kernel": "Kernel", "params": "Params",
    "sil": "Sil(ns)", "tc": "TC", "device": "Device", "stream": "Stream", "grid": "Grid", "block": "Block",
    "flops": "FLOPs", "bytes": "Bytes",
}  # fmt: skip
NASTY = 'a "quoted", name\nof\x1b[31m two lines'


def sample() -> Table:
    """A matrix product of 2 x 3 and 3 x 4, and a kernel of which nothing is known but its name."""
    return Table(
        2,
        {
            "kShortName": Coded.of(["volta_sgemm_128x64_nn", NASTY]),
            "kLongName": Coded.of(["void volta_sgemm_128x64_nn<float>(float*)", NASTY]),
            "kDuration": np.array([3000, 1000]),
            "layer": Coded.of(['["net", "fc1"]', ""]),
            "trace": Coded.of(['["train.py:1", "net.py:2"]', ""]),
            "seqId": Ragged.of([[7, 8], []]),
            "subSeqId": np.array([0, NULL]),
            "dir": Coded.of(["fprop", ""]),
            "mod": Coded.of(['["torch", "aten"]', ""]),
            "op": Coded.of(['["matmul", "mm"]', ""]),
            "grid": Coded.of(["[1, 2, 3]", ""]),
            "kind": Coded.of(["kernel", "kernel"]),
            "start": np.array([10, 20]),
            "aten": Coded.of(["aten::mm", ""]),
            "sizes": Coded.of(["[[2, 3], [3, 4]]", ""]),
            "dtypes": Coded.of(['["float32", "float32"]', ""]),
            "reason": Coded.of(["", "no API row"]),
        },
    )


@pytest.fixture
def netdict(tmp_path):
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(sample(), out)
    return str(tmp_path / "net.dict")


def run(capfdbinary, *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    out, err = capfdbinary.readouterr()
    return code, out.decode(), err.decode()


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_options_are_frozen():
    options = {option for action in cli.build_parser()._actions for option in action.option_strings}
    assert options == {
        *(
            "-h",
            "--help",
            "-c",
            "--csv",
            "-w",
            "-o",
            "--output",
            "--force",
            "-q",
            "--quiet",
            "--version",
            "--peaks",
            "--ncu",
        ),
        "--models",
        "--graphs",
        *("--where", "--group", "--sort", "--top", "--layer-depth", "--json", "--jsonl", "--summary"),
        *("--advise", "--timings", "--explain"),
    }


def test_the_first_columns_are_pyprofs_with_its_headers():
    assert [column.name for column in COLUMNS[:20]] == PYPROFS
    assert {column.name: column.header for column in COLUMNS[:20]} == HEADERS
    assert DEFAULT == "idx,dir,sub,mod,op,kernel,params,sil"


def test_names_and_headers_are_distinct():
    assert len({column.name for column in COLUMNS}) == len({column.header for column in COLUMNS}) == len(COLUMNS)


def test_help_lists_every_column_with_unit_and_meaning(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # so that no line is wrapped
    with pytest.raises(SystemExit) as done:
        cli.main(["-h"])
    assert done.value.code == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for column in COLUMNS:
        assert " ".join(f"{column.name} {column.meaning}{f' ({column.unit})' if column.unit else ''}".split()) in lines


def test_csv_quotes_every_field_and_parses_back(netdict, capfdbinary):
    code, out, _ = run(capfdbinary, "--csv", "-c", "all", netdict)
    assert code == 0
    first, second = table(out)
    assert {header: first[header] for header in HEADERS.values()} == {
        "Idx": "1", "SeqId": "7,8", "AltSeqId": "-", "TId": "", "Layer": "net:fc1", "Trace": "train.py:1,net.py:2",
        "Direction": "fprop", "Sub": "0", "Module": "torch", "Op": "matmul", "Kernel": "volta_sgemm_128x64_nn",
        "Params": "T=[(2,3),(3,4)],float32", "Sil(ns)": "3000", "TC": "0", "Device": "", "Stream": "", "Grid": "1,2,3",
        "Block": "", "FLOPs": "48", "Bytes": "104",  # 2*2*3*4; (6 + 12 + 8) * 4
    }  # fmt: skip
    assert (first["Role"], first["Aten"], first["Family"], first["Kind"]) == ("main", "aten::mm", "gemm", "kernel")
    assert second["Kernel"] == NASTY.replace("\x1b", "?")  # a CSV may be shown on a terminal
    assert (second["FLOPs"], second["Bytes"], second["Sub"], second["Grid"]) == ("", "", "", "")  # unknown is not zero
    assert (second["Module"], second["Op"], second["Layer"], second["Reason"]) == ("na", "na", "-", "no API row")
    assert out.startswith('"Idx","SeqId",')


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_json_drives_no_terminal_and_keeps_the_name(form, tmp_path, capfdbinary):
    r"""U+009B is CSI, as ESC [; at U+0085 and U+2028, Python's splitlines() divides a text."""
    name = "a\x9b2J\x85b\u2028c\x7f\u202ed漢"
    table = sample()
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(Table(table.rows, {**table.columns, "kShortName": Coded.of([name] * 2)}), out)
    code, out, _ = run(capfdbinary, form, "-c", "kernel", str(tmp_path / "net.dict"))
    assert code == 0
    assert r"a\u009b2J\u0085b\u2028c\u007f\u202ed漢" in out
    rows = json.loads(out)["rows"] if form == "--json" else [json.loads(line) for line in out.splitlines()]
    assert [row["kernel"] for row in rows] == [name] * 2


def test_the_chosen_columns_come_in_the_order_they_were_given(netdict, capfdbinary):
    assert run(capfdbinary, "--csv", "-c", "sil,idx", netdict)[1] == '"Sil(ns)","Idx"\n"3000","1"\n"1000","2"\n'


def test_plain_has_one_word_a_field(netdict, capfdbinary):
    out = run(capfdbinary, "-c", "idx,dir,kernel,flops,sizes", netdict)[1]
    assert out.splitlines() == [
        "idx dir kernel flops sizes",
        "1 fprop volta_sgemm_128x64_nn 48 [[2,_3],_[3,_4]]",
        '2 - a_"quoted",_name_of?[31m_two_lines - -',
    ]


@pytest.mark.parametrize("width", [63, 80, 120, 200])
def test_aligned_lines_fit_the_width_and_numbers_stay_whole(netdict, capfdbinary, width):
    code, out, _ = run(capfdbinary, "-w", str(width), netdict)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert [line.split()[-1] for line in lines] == ["sil", "3000", "1000"]
    assert "\x1b" not in out


def test_a_cut_kernel_name_keeps_both_ends_and_a_cut_module_its_end(netdict, capfdbinary):
    out = run(capfdbinary, "-w", "19", "-c", "kernel,layer", netdict)[1]
    assert out.splitlines()[1] == "volta..4_nn net:fc1"


def test_a_width_too_small_is_bad_usage(netdict, capsysbinary):
    with pytest.raises(SystemExit) as done:
        cli.main(["-w", "20", netdict])
    assert done.value.code == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert b"-w 20: these columns need " in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-c", "idx,oops", "x"], "'oops' is no column; there are: idx, seq,"),
        (["-c", "", "x"], "'' is no column"),
        (["-c", "idx,kernal", "x"], "argument -c: 'kernal' is no column: did you mean 'kernel'?"),
        (["-c", "Direction", "x"], "argument -c: 'Direction' is no column: did you mean 'dir'?"),  # PyProf's header
        (["--sort", "-Sil(ns)", "x"], "argument --sort: 'Sil(ns)' is no column: did you mean 'sil'?"),
        (["--group", "Layer", "x"], "argument --group: 'Layer' is no column: did you mean 'layer'?"),
        (
            ["--where", "op = 'mm'", "x"],
            "argument --where: character 4: \"= 'mm'\": expected one of == != < <= > >= in like: did you mean ==?",
        ),
        (["--where", "opp == 'mm'", "x"], "character 1: 'opp': no column: did you mean 'op'?"),
        (["--where", "op == mm", "x"], "character 7: 'mm': no column; a text is written in quotes: 'mm'"),
        (["-w", "-5", "x"], "expected a number from 0 on"),
        (["-w", "wide", "x"], "expected a number from 0 on, found 'wide'"),
        (["x", "--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_bad_usage_exits_with_2(argv, words, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(argv)
    assert done.value.code == 2
    assert words in capsys.readouterr().err


def test_without_a_file_on_a_terminal_it_says_so_and_does_not_wait(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as done:
        cli.main([])
    assert done.value.code == 2
    assert "no file: give net.dict" in capsys.readouterr().err


@pytest.mark.parametrize("file", [[], ["-"]])
def test_standard_input(netdict, file):
    with open(netdict, "rb") as source:
        done = subprocess.run([sys.executable, "-m", "pyprof.prof", "-q", "--csv", "-c", "sil", *file], stdin=source,
                              capture_output=True, check=False)  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (b'"Sil(ns)"\n"3000"\n"1000"\n', b"", 0)


def test_parquet_gives_the_same(netdict, tmp_path, capfdbinary):
    write_parquet(sample(), tmp_path / "net.parquet")
    argv = ("--csv", "-c", "all")
    assert run(capfdbinary, *argv, netdict) == run(capfdbinary, *argv, str(tmp_path / "net.parquet"))


def test_the_summary_tells_what_is_attributed_and_what_is_not_counted(netdict, capfdbinary):
    err = run(capfdbinary, netdict)[2]
    attributed = "2 rows; 75.0% of 0.0040 ms of GPU time is attributed to an op"
    assert err.startswith(f"prof.py: {attributed}; FLOPs and bytes not counted: 25.0%: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert run(capfdbinary, "-q", netdict)[2] == ""


def test_a_file_is_written_and_not_overwritten(netdict, tmp_path, capfdbinary):
    argv = ("--csv", "-q", "-c", "sil", "-o", str(tmp_path / "net.csv"), netdict)
    assert run(capfdbinary, *argv) == (0, "", "")
    assert (tmp_path / "net.csv").read_text() == '"Sil(ns)"\n"3000"\n"1000"\n'
    code, out, err = run(capfdbinary, *argv)
    assert (code, out) == (1, "")
    assert err == f"prof.py: {tmp_path}/net.csv: exists; give --force to overwrite it, or another name\n"
    assert run(capfdbinary, "--force", *argv)[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "an empty file"),
        (b"\0\1\2\3" * 99, "a binary file"),
        (b'{"schemaVersion": 1}', "no list of traceEvents"),
        (b"{'kShortName': 'a', 'kDuration': 5}\n{'kShortName': 'a", "ends in the middle of a row"),
        (b"PAR1 and then nothing", "broken"),
        (b"\x1f\x8b\x08 and then nothing", "gzip"),
    ],
)
def test_broken_input_is_one_line_and_nothing_written(tmp_path, capfdbinary, text, words):
    (tmp_path / "broken").write_bytes(text)
    code, out, err = run(capfdbinary, "--csv", "-o", str(tmp_path / "out"), str(tmp_path / "broken"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"prof.py: {tmp_path}/broken")
    assert words in err
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_missing_file_is_one_line(tmp_path, capfdbinary):
    assert run(capfdbinary, str(tmp_path / "no")) == (
        1, "", f"prof.py: {tmp_path}/no: cannot be read: No such file or directory\n")  # fmt: skip


def test_a_reader_that_goes_away_is_no_error(netdict):
    command = f"{sys.executable} -m pyprof.prof -q --csv -c all {netdict} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.stderr == b""


def test_the_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom pyprof.prof import cli\ntry: cli.main(['-h'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pandas', 'pyarrow', 'torch', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_pyprofs_own_file_reads_as_pyprof_printed_it(data, capfdbinary):
    """Names, directions, times and launch sizes are PyProf's; FLOPs and bytes are not compared: its were rougher."""
    folder = data / "pyprof_golden"
    same = ["kernel", "mod", "dir", "sil", "device", "stream", "block", "grid"]
    out = run(capfdbinary, "-q", "--csv", "-c", ",".join(same), str(folder / "net.dict"))[1]
    with (folder / "lm.csv").open(newline="") as source:
        wanted = [{HEADERS[name]: row[HEADERS[name]] for name in same} for row in csv.DictReader(source)]
    assert table(out) == wanted


def test_params_of_a_marker_and_of_many_tensors():
    from pyprof.prof.table.params import of_aten, of_marker

    old = [{"name": "", "type": "tensor", "shape": [35, 20], "dtype": "int64"},
           {"name": "", "type": "bool", "value": False},
           {"name": "w", "type": "list", "items": [{"type": "tensor", "shape": [], "dtype": "float16"}]},
           {"name": "s", "type": "tuple", "value": [1, 1]},
           {"name": "mode", "type": "str", "value": "x y" * 20}]  # fmt: skip
    assert of_marker(old) == "T=[(35,20),()],int64/float16,false,s=(1,1),mode=xyxyxyxyxyxyxyxyxyxy.."
    foreach = of_aten([[[1, 2], [3]] * 5, []], [["float32"] * 10, ""], None)
    assert foreach == "T=[(1,2),(3),(1,2),(3),(1,2),(3),+4],float32"
    assert of_aten([], [], []) == ""


def test_explain_is_one_object_with_json(netdict, tmp_path):
    told = tmp_path / "told.json"
    assert cli.main(["--explain", "1", "--json", "-o", str(told), str(netdict)]) == 0
    found = json.loads(told.read_text())
    lines = {line["what"]: line["text"] for line in found["lines"]}
    assert (found["schema"], found["row"]) == ("pyprof/explain/1", 1)
    assert lines["layer"] == "net.fc1"
    assert lines["the op"] == "48 FLOP, 104 bytes"  # 2*2*4*3; (6+12)*4 read, 8*4 written
    assert lines["tensor cores"].startswith("0")


def test_explain_is_as_wide_as_asked(netdict, capsys):
    texts = []
    for options in ([], ["-w", "0"], ["-w", "60"]):
        assert cli.main(["-q", "--explain", "1", *options, str(netdict)]) == 0
        texts.append(capsys.readouterr().out)
    whole, zero, narrow = texts
    assert whole == zero
    assert max(map(len, whole.splitlines())) > 60 >= max(map(len, narrow.splitlines()))
    assert narrow.split() == whole.split()


def test_explain_names_the_rows_that_there_are(netdict, capsys):
    with pytest.raises(SystemExit):
        cli.main(["--explain", "3", str(netdict)])
    assert "expected a row from 1 to 2, found 3" in capsys.readouterr().err


def test_a_cpu_captures_time_is_not_called_the_gpus():
    table = Table(1, {"kDuration": np.array([1000]), "kind": Coded.of(["cpu"]), "op": Coded.of(['["relu"]'])})
    assert "100% of 0.0010 ms of CPU time is attributed" in totals(table, annotate(table)).line()


def test_headers_of_text_are_the_names_that_the_options_take_whole(netdict, capfdbinary):
    names = [column.name for column in COLUMNS]
    for argv in (("-w", "3000"), ("-w", "700"), ()):
        header = run(capfdbinary, *argv, "-q", "-c", "all", netdict)[1].splitlines()[0]
        assert header.split() == names
    groups = run(capfdbinary, "-q", "--group", "op,dir", netdict)[1].splitlines()[0]
    assert groups.split() == "op dir count time share flops bytes tflops gbps uncounted bytes_uncounted".split()


def test_on_a_terminal_rows_are_aligned_without_an_option(netdict, capfdbinary, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((70, 25)))
    out = run(capfdbinary, "-q", "-c", "kernel,sil", netdict)[1]
    assert out.splitlines() == [
        "kernel" + 28 * " " + "  sil",
        "volta_sgemm_128x64_nn" + 13 * " " + " 3000",
        'a "quoted", name?of?[31m two lines 1000',
    ]
    group = run(capfdbinary, "--group", "op", netdict)
    assert max(map(len, group[1].splitlines())) <= 70
    assert group[1].splitlines()[0].split() == "op count time share flops bytes tflops gbps uncounted".split()
    assert "left out for lack of width: bytes_uncounted" in group[2]
    monkeypatch.setattr(
        "shutil.get_terminal_size", lambda: os.terminal_size((28, 25))
    )  # 6 + 5 + 4 + 5 and blanks are 23
    _, out, err = run(capfdbinary, "--group", "op", netdict)
    assert out.splitlines()[0].split() == ["op", "count", "time", "share"]
    assert "left out for lack of width: flops,bytes,tflops,gbps,uncounted,bytes_uncounted (-c names columns)" in err
    assert run(capfdbinary, "-w", "0", "-q", "-c", "kernel,sil", netdict)[1].splitlines()[0] == "kernel sil"  # for awk


def test_a_text_that_no_row_has_is_named_with_what_it_may_mean(netdict, capfdbinary):
    def warned(condition: str) -> list[str]:
        code, out, err = run(capfdbinary, "--where", condition, "-c", "idx", netdict)
        assert (code, out) == (0, "idx\n")
        return [line for line in err.splitlines() if "warning" in line]

    assert warned("op == 'MatMul'") == ["prof.py: warning: no row has op 'MatMul': did you mean 'matmul'?"]
    assert warned("op in ('matmull', 'xyz')") == [
        "prof.py: warning: no row has op 'matmull': did you mean 'matmul'?",
        "prof.py: warning: no row has op 'xyz'; there are 'matmul'",
    ]
    assert warned("kernel == 'sgemm'") == [
        "prof.py: warning: no row has kernel 'sgemm'; 1 name contains it: like '*sgemm*'"
    ]
    assert warned("op == 'matmul' and sil < 5") == []
    assert warned("dir == 'forward'") == ["prof.py: warning: no row has dir 'forward'; there are 'fprop'"]
    found = json.loads(run(capfdbinary, "--json", "--where", "op == 'mattmul'", netdict)[1])
    assert found["warnings"] == ["no row has op 'mattmul': did you mean 'matmul'?"]


@pytest.mark.parametrize(
    ("argv", "known"),
    [
        (("-o", "net.foo"), ".csv, .jsonl, .json, .parquet and, for text, .txt or none (each also with .gz)"),
        (("-o", "net.foo.gz"), ".csv, .jsonl, .json, .parquet and"),
        (("-o", "net.dict"), ".csv, .jsonl"),
        (("--group", "op", "-o", "net.xlsx"), ".csv, .jsonl"),
        (("--summary", "-o", "net.csv"), ".json and, for text, .txt or none"),
        (("--advise", "-w", "80", "-o", "net.md"), ".json and, for text, .txt or none"),
    ],
)
def test_an_unknown_suffix_is_refused_with_those_there_are(netdict, tmp_path, monkeypatch, capsys, argv, known):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        cli.main([*argv, netdict])
    err = capsys.readouterr().err
    suffix = "." + argv[-1].removesuffix(".gz").split(".")[1]
    assert (done.value.code, err.count("\n")) == (2, 1)
    assert err.startswith(f"prof.py: error: argument -o: {argv[-1]}: {suffix} is no known suffix; there are {known}")
    assert [path.name for path in tmp_path.iterdir()] == ["net.dict"]


@pytest.mark.parametrize(
    "argv", [("--csv", "-o", "net.foo"), ("-w", "99", "-o", "net.foo"), ("-o", "net"), ("-o", "a.gz")]
)
def test_any_name_will_do_where_an_option_chooses_the_form_or_there_is_no_suffix(netdict, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["-q", *argv, netdict]) == 0
    assert (tmp_path / argv[-1]).stat().st_size > 0


def test_groups_in_a_pipe_are_aligned_words(netdict, capfdbinary):
    out = run(capfdbinary, "-q", "--group", "op,kernel", "-c", "kernel,op,time,flops", netdict)[1]
    assert out.splitlines() == [
        "kernel                             op     time flops",
        "volta_sgemm_128x64_nn              matmul 3000    48",  # 2*2*3*4
        'a_"quoted",_name_of?[31m_two_lines na     1000     -',
    ]
    assert [line.split() for line in out.splitlines()] == [
        line.split(" ")
        for line in run(capfdbinary, "-q", "-w", "0", "--group", "op,kernel", "-c", "kernel,op,time,flops", netdict)[
            1
        ].splitlines()
    ]
