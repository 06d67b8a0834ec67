"""prof.py --json: one object whatever is asked, strict JSON that agrees with its schema, errors too."""

import gzip
import io
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from pyprof.command.envelope import envelope, write_envelope
from pyprof.prof import cli
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.table import json_document as answers
from pyprof.prof.table.columns import COLUMN, COLUMNS
from pyprof.prof.table.query import make_query, run_query
from pyprof.prof.table.totals import totals
from pyprof.prof.table.written_forms import json_rows
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.netdict import write_netdict
from pyprof.table.parquet import write_parquet
from tests.answered import answer, strict, valid
from tests.paths import GOLDEN
from tests.tables import HOSTILE, readable_tables

LENET = str(GOLDEN / "h200_lenet.sqlite.gz")
ASKED = {  # what is asked -> the answer
    "": "kernels",
    "-c all": "kernels",
    "--where sil>1e4 --sort -sil --top 5": "kernels",
    "--group op,dir": "groups",
    "--group layer --layer-depth 1 -c layer,time,gbps": "groups",
    "--summary": "summary",
    "--advise": "advice",
    "--explain 1": "explain",
}


def sample(name: str = "volta_sgemm_128x64_nn") -> Table:
    """A matrix product of 2 x 3 and 3 x 4 in 2000 ns, and a kernel of 3000 ns of which nothing else is known."""
    return Table(
        2,
        {
            "kShortName": Coded.of([name, "unknown"]),
            "kDuration": np.array([2000, 3000]),
            "mod": Coded.of(['["torch"]', ""]),
            "op": Coded.of(['["matmul"]', ""]),
            "kind": Coded.of(["kernel", "kernel"]),
            "start": np.array([10, 2**60]),
            "opId": np.array([2**53 + 1, NULL]),
            "aten": Coded.of(["aten::mm", ""]),
            "sizes": Coded.of(["[[2, 3], [3, 4]]", ""]),
            "dtypes": Coded.of(['["float32", "float32"]', ""]),
            "seqId": Ragged.of([[7, 8], []]),
            "reason": Coded.of(["", "no API row"]),
        },
    )


@pytest.fixture
def netdict(tmp_path):
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(sample(), out)
    return str(tmp_path / "net.dict")


def run(capfdbinary, *argv: str) -> tuple[int, bytes, str]:
    try:
        code = cli.main(list(argv))
    except SystemExit as stop:
        code = stop.code
    out, err = capfdbinary.readouterr()
    return code, out, err.decode()


# One object, whatever is asked


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("file", ["h200_lenet.sqlite.gz", "h200_lenet_fp32.json.gz"])
def test_each_answer_agrees_with_its_schema(asked, file, capfdbinary):
    code, out, err = run(capfdbinary, "--json", *asked.split(), str(GOLDEN / file))
    assert (code, err) == (0, "")
    found = answer(out, ASKED[asked], "prof")
    profiler = found["input"][0]["profiler"]
    assert found["input"] == [{"name": str(GOLDEN / file), "profiler": profiler}]
    assert profiler.startswith("nsys" if "sqlite" in file else "kineto")


QUESTIONS = ["-c idx,kernel,flops,advice", "--group op", "--summary", "--advise", "--explain 3"]


def test_each_answer_of_many_real_captures(data, capfdbinary):
    files = sorted([*(data / "nsys").glob("*.gz"), *(data / "kineto").glob("*.json*")])
    read = dict.fromkeys(QUESTIONS, 0)
    for file in (file for file in files if file.stat().st_size <= 1_000_000):
        answers_of = {asked: run(capfdbinary, "--json", *asked.split(), str(file)) for asked in QUESTIONS}
        for asked, (code, out, err) in answers_of.items():
            found = valid(strict(out), "prof")
            assert code == (found["error"]["exit_code"] if found["schema"] == "pyprof/error/1" else 0), (asked, file)
            assert bool(err) == (code != 0), (asked, file)
            assert code == 2 or found["input"][0]["name"] == str(file), asked
            read[asked] += code == 0
    assert all(count > 10 for count in read.values())


def test_rows_have_the_columns_keys_and_null_for_unknown(netdict, capfdbinary):
    code, out, err = run(capfdbinary, "--json", "-c", "idx,seq,op,start,flops,tflops,tc", netdict)
    found = answer(out, "kernels")
    assert (code, err) == (0, "")
    assert found["rows"] == [
        {"idx": 1, "seq": "7,8", "op": "matmul", "start": 10, "flops": 48, "tflops": 48 / 2000 / 1e3, "tc": "0"},
        {"idx": 2, "seq": None, "op": None, "start": 2**60, "flops": None, "tflops": None, "tc": "-"},
    ]
    assert [column["name"] for column in found["columns"]] == list(found["rows"][0])
    assert found["columns"][4] == {
        "name": "flops",
        "type": "integer",
        "unit": "flop",
        "meaning": COLUMN["flops"].meaning,
    }
    assert found["columns"][1]["unit"] is None
    assert found["totals"] == {
        "rows": 2, "time_ns": 5000, "on": "GPU", "attributed_ns": 2000, "attributed_percent": 40.0,
        "uncounted_ns": 3000, "uncounted_percent": 60.0, "bytes_uncounted_ns": 3000, "bytes_uncounted_percent": 60.0,
    }  # fmt: skip
    assert found["uncounted"] == found["bytes_uncounted"] == [{"op": "unknown", "time_ns": 3000, "percent": 60.0}]
    assert found["selected"] == {"rows": 2, "time_ns": 5000, "percent": 100.0}
    assert found["assumptions"][0].startswith("the capture does not name the GPU")
    assert out.count(b"\n") == 4  # a row a line


def test_rates_per_op_are_one_command(netdict, capfdbinary):
    found = answer(run(capfdbinary, "--group", "op", "--json", netdict)[1], "groups")
    assert found["group_by"] == ["op"]
    rows = {row["op"]: row for row in found["rows"]}
    assert rows["matmul"] == {
        "op": "matmul", "count": 1, "time": 2000, "share": 40.0, "flops": 48, "bytes": 104,
        "tflops": 48 / 2000 / 1e3, "gbps": 104 / 2000, "uncounted": 0.0, "bytes_uncounted": 0.0,
    }  # fmt: skip
    assert (rows[None]["flops"], rows[None]["tflops"], rows[None]["uncounted"]) == (None, None, 100.0)


def test_what_where_chose_is_told_beside_the_whole(netdict, capfdbinary):
    found = answer(run(capfdbinary, "--json", "--where", "sil > 2500", "--group", "kernel", netdict)[1], "groups")
    assert found["selected"] == {"rows": 1, "time_ns": 3000, "percent": 60.0}
    assert found["totals"]["rows"] == 2
    assert [row["kernel"] for row in found["rows"]] == ["unknown"]


def test_ops_without_a_model_are_told_with_their_time(tmp_path, capfdbinary):
    table = sample().with_column("op", Coded.of(['["matmul"]', '["mystery","inner"]']))
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table, out)
    found = answer(run(capfdbinary, "--json", str(tmp_path / "net.dict"))[1], "kernels")
    assert found["uncounted"] == [{"op": "mystery", "time_ns": 3000, "percent": 60.0}]
    assert (found["totals"]["uncounted_ns"], found["totals"]["attributed_percent"]) == (3000, 100.0)


def test_the_advice_is_a_list_of_objects_in_the_one_object(capfdbinary):
    found = answer(run(capfdbinary, "--advise", "--json", LENET)[1], "advice")
    wanted = {"rule", "saved_ms", "low_ms", "high_ms", "gpu_ms", "kernels", "op", "layer", "trace", "why", "change"}
    assert found["changes"] and all(change.keys() >= wanted for change in found["changes"])


def test_the_summarys_numbers_have_every_field(capfdbinary):
    found = answer(run(capfdbinary, "--summary", "--json", LENET)[1], "summary")
    assert list(found["numbers"]) == [field.name for field in fields(Summary)]
    (device,) = found["numbers"]["devices"]
    # 52 kernels; utilisation: 100 * kernel_ns / span_ns
    assert device["utilisation_percent"] == 100 * device["kernel_ns"] / device["span_ns"]
    assert found["headline"].startswith("52 kernels and 5 memsets on one NVIDIA H200.")


# Where it is written


@pytest.mark.parametrize("asked", ASKED)
def test_a_name_that_ends_in_json_gets_the_object(asked, tmp_path, capfdbinary):
    code, out, _ = run(capfdbinary, *asked.split(), "-o", str(tmp_path / "x.json"), LENET)
    assert (code, out) == (0, b"")
    answer((tmp_path / "x.json").read_bytes(), ASKED[asked])


def test_and_packed(tmp_path, capfdbinary):
    assert run(capfdbinary, "-o", str(tmp_path / "x.json.gz"), LENET)[0] == 0
    answer(gzip.decompress((tmp_path / "x.json.gz").read_bytes()), "kernels")


@pytest.mark.parametrize(("form", "begin"), [("--csv", b'"Idx"'), ("--jsonl", b'{"idx":1'), ("-w 80", b"idx")])
def test_another_form_beats_the_name(form, begin, tmp_path, capfdbinary):
    assert run(capfdbinary, *form.split(), "-o", str(tmp_path / "x.json"), LENET)[0] == 0
    assert (tmp_path / "x.json").read_bytes().startswith(begin)


def test_json_beats_a_name_of_another_form(tmp_path, capfdbinary):
    for name in ("x.csv", "x.jsonl", "x.txt"):
        assert run(capfdbinary, "--json", "-o", str(tmp_path / name), LENET)[0] == 0
        answer((tmp_path / name).read_bytes(), "kernels")


def test_a_file_that_is_there_stays_and_the_error_is_an_object(netdict, tmp_path, capfdbinary):
    (tmp_path / "x.json").write_text("mine")
    code, out, err = run(capfdbinary, "--json", "-o", str(tmp_path / "x.json"), netdict)
    found = answer(out, "error", "prof")
    assert (code, found["error"]["type"], found["error"]["exit_code"]) == (1, "PyprofError", 1)
    assert "--force" in found["error"]["message"] and err.count("\n") == 1
    assert (tmp_path / "x.json").read_text() == "mine"


def test_words_of_the_reader_are_warnings(tmp_path, capfdbinary, data):
    file = next((data / "nsys").glob("GindaChen*healthy_1pct*"))
    told = run(capfdbinary, "-c", "idx", "-o", str(tmp_path / "x"), str(file))[2]
    found = answer(run(capfdbinary, "--json", "-c", "idx", str(file))[1], "kernels")
    assert found["warnings"]
    assert [f"prof.py: warning: {text}" for text in found["warnings"]] == told.splitlines()[: len(found["warnings"])]


# Hostile input


@settings(max_examples=60)
@given(readable_tables())
def test_any_table_is_strict_json_and_says_what_its_lines_say(table):
    annotation = annotate(table)
    query = make_query([column.name for column in COLUMNS if column.name != "advice"], [])
    cells, rows, notes = run_query(query, table, annotation)
    own = answers.rows_of(query, table, totals(table, annotation), rows, notes)
    out = io.BytesIO()
    write_envelope(envelope("kernels", own), out, json_rows(cells))
    found = valid(strict(out.getvalue()), "prof")
    assert len(found["rows"]) == len(table)
    assert found["rows"] == [json.loads(line) for line in json_rows(cells)]


@pytest.mark.parametrize("asked", ASKED)
def test_hostile_names(asked, tmp_path, capfdbinary):
    name = "".join(HOSTILE)
    row = {"kShortName": name, "kLongName": name, "kDuration": 2**62, "op": [name], "layer": [name], "trace": [name],
           "mod": [name], "reason": name, "start": 5}  # fmt: skip
    (tmp_path / name.replace("/", "").replace("\0", "")[:60]).write_text(f"{row!r}\n")
    (file,) = tmp_path.iterdir()
    code, out, _ = run(capfdbinary, "--json", *asked.split(), str(file))
    found = answer(out, ASKED[asked], "prof")
    assert code == 0 and found["input"][0]["name"] == str(file)
    if asked == "-c all":
        assert (found["rows"][0]["kernel"], found["rows"][0]["sil"]) == (name, 2**62)


@pytest.mark.parametrize("asked", ASKED)
def test_a_table_without_rows(asked, tmp_path, capfdbinary):
    write_parquet(sample().take(np.array([], np.int64)), tmp_path / "net.parquet")
    code, out, _ = run(capfdbinary, "--json", *asked.split(), str(tmp_path / "net.parquet"))
    if asked == "--explain 1":
        assert (code, answer(out, "error")["error"]["type"]) == (2, "UsageError")
        return
    found = answer(out, ASKED[asked], "prof")
    assert code == 0
    if "rows" in found:
        assert (found["rows"], found["totals"]["rows"], found["totals"]["attributed_percent"]) == ([], 0, None)
        assert found["selected"]["percent"] is None


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", "InputError", "found an empty file"),
        (b"\0\1\2\3" * 99, "InputError", "found a binary file"),
        (b"{'kShortName': 'a', 'kDuration': 5}\n{'kShortName': 'a", "InputError", "ends in the middle of a row"),
        (b"{'kShortName': 'a'}\n", "SchemaError", "kDuration"),
        (b"PAR1 and then nothing", "InputError", "broken"),
        (b'{"traceEvents": []}', "InputError", "without events"),
    ],
)
def test_a_file_that_is_none(content, kind, words, tmp_path, capfdbinary):
    (tmp_path / "net").write_bytes(content)
    code, out, err = run(capfdbinary, "--json", str(tmp_path / "net"))
    found = answer(out, "error", "prof")
    assert (code, found["error"]["type"], found["error"]["file"]) == (1, kind, str(tmp_path / "net"))
    assert found["error"]["line"] == {"ends in the middle of a row": 2, "kDuration": 1}.get(words)
    assert words in found["error"]["message"]
    assert err == f"prof.py: {found['error']['message']}\n"
    assert found["input"] == [{"name": str(tmp_path / "net"), "profiler": None}]


def test_a_name_that_is_no_utf8(tmp_path, capfdbinary):
    found = answer(run(capfdbinary, "--json", f"{tmp_path}/no\udcff")[1], "error")
    assert found["error"]["file"] == f"{tmp_path}/no�"


@pytest.mark.parametrize(
    "argv",
    [
        ["--json", "--csv"],
        ["--json", "--group", "oops"],
        ["--json", "--where", "sil.x > 1"],
        ["--json", "--summary", "--top", "3"],
        ["--json", "--explain", "99"],
        ["--json", "--oops"],
    ],
)
def test_wrong_usage(argv, netdict, capfdbinary):
    code, out, err = run(capfdbinary, *argv, netdict)
    found = answer(out, "error", "prof")
    assert (code, found["error"]["type"], found["error"]["exit_code"]) == (2, "UsageError", 2)
    assert err.endswith(f"prof.py: error: {found['error']['message']}\n")


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m pyprof.prof --json -c all {GOLDEN}/h200_gpt2_step.sqlite.gz | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"schema":', b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "pyprof.prof", "--json", LENET]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"prof.py: standard output: cannot be written: No space left on device\n"
