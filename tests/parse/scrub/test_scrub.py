"""pyprof scrub: planted secrets are not in the copy's bytes, and every number is the same."""

import csv
import gzip
import io
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet

from pyprof import captured_record, range_pieces
from pyprof.captured_record import CAPTURED_RANGE, CapturedRange, CapturedRecord
from pyprof.cli import main
from pyprof.parse.scrub import write_copy
from pyprof.parse.scrub.captured_records import GONE, cleaned_records
from pyprof.parse.scrub.private_text import Cleaner
from pyprof.range_pieces import Piece, piece_in, pieces_of
from pyprof.source_path import short_line, short_path
from tests.parse.databases import test_database_damage
from tests.parse.formats import test_rocprof_json
from tests.parse.formats.test_memory_snapshot import FORWARD, event, snapshot
from tests.parse.kineto.kineto_file import begin, call, kernel, op, x
from tests.parse.kineto.kineto_file import write as write_trace
from tests.parse.ncu.ncu_table import launch, raw
from tests.parse.nsys import nsys_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, push
from tests.paths import GOLDEN, ROOT

USER, HOST, TOKEN = "alicewonder", "node17-rack4", "hf_abcdefGHIJKLMNOP1234"
SECRETS = (USER, HOST, TOKEN, "/home/", "secretproject", "10.20.30.40", "alice@example.org", "client-nda",
           "1a2b3c4d-1111-2222-3333-444455556666")  # fmt: skip
# A text of an environment, as nsys records it: it names the user and the host.
ENVIRONMENT = f'HOME="/home/{USER}"\0USER={USER}\0HOSTNAME={HOST}\0HF_TOKEN={TOKEN}\0X=client-nda'
PLANTED = (
    f"/home/{USER}/secretproject/train.py:12", f"run by {USER} on {HOST}", f"token {TOKEN}", "see 10.20.30.40 now",
    "mail alice@example.org", "GPU-1a2b3c4d-1111-2222-3333-444455556666", f"C:\\Users\\{USER}\\secretproject\\x.py",
    ENVIRONMENT,
)  # fmt: skip


def scrub(*words: object) -> None:
    assert main(["scrub", *map(str, words)]) == 0


def test_a_database_is_scrubbed_where_an_unnamed_file_gets_no_name(tmp_path, monkeypatch):
    def refused(handle: int, name: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(write_copy, "link_unnamed", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    scrub(GOLDEN / "h200_lenet.sqlite.gz", "-o", tmp_path / "refused.sqlite")
    monkeypatch.undo()
    scrub(GOLDEN / "h200_lenet.sqlite.gz", "-o", tmp_path / "net.sqlite")
    assert (tmp_path / "refused.sqlite").read_bytes() == (tmp_path / "net.sqlite").read_bytes()
    assert list((tmp_path / "tmp").iterdir()) == []


def held(path: Path) -> list[str]:
    """The secrets that a copy's bytes hold, in UTF-8 or UTF-16."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    content = b"\0".join(_plain(file) for file in files)
    forms = {secret: (secret.encode(), secret.encode("utf-16-le")) for secret in SECRETS}
    return [secret for secret, texts in forms.items() if any(text.lower() in content.lower() for text in texts)]


def _plain(file: Path) -> bytes:
    content = file.read_bytes()
    if content[:4] != b"PAR1":
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    table = parquet.read_table(file)
    return repr((table.to_pylist(), table.schema.metadata)).encode()


def csv_of(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["prof", str(path), "--csv", "-c", "all", "-q", *words]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


# Databases


def planted_database(path: Path, whole: Path) -> Path:
    """A database with every planted text in every column of every table, in free pages, and in tables of its own."""
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in names:
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            for text in PLANTED:
                db.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', [text] * len(columns))
                db.execute(
                    f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', [text.encode()] * len(columns)
                )
            db.execute(f'ALTER TABLE "{table}" ADD COLUMN "more" DEFAULT \'{USER}\'')
        for table in ("META_DATA_CAPTURE", "ProcessStreams", "PROCESSES", USER):
            db.execute(f'CREATE TABLE "{table}" (name, value)')
            db.executemany(
                f'INSERT INTO "{table}" VALUES (?, ?)', [("PROCESS_0:ENVIRONMENT", text) for text in PLANTED]
            )
        db.execute(f"CREATE VIEW v AS SELECT '{TOKEN}'")
        db.execute("CREATE TABLE gone AS SELECT * FROM ProcessStreams, ProcessStreams b, ProcessStreams c")
        db.execute("DROP TABLE gone")  # its pages are free now, and still hold the texts
        db.commit()
    assert len(held(path)) == len(SECRETS)
    return path


@pytest.mark.parametrize("kind", test_database_damage.WHOLE)
def test_no_secret_is_in_the_bytes_of_a_database_s_copy(kind, tmp_path):
    whole = test_database_damage.WHOLE[kind](tmp_path / "whole.sqlite")
    planted, copy = planted_database(tmp_path / "planted.sqlite", whole), tmp_path / "copy.sqlite"
    scrub(planted, "-o", copy)
    assert held(copy) == []
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert {kind for (kind,) in db.execute("SELECT type FROM sqlite_master")} == {"table"}


def test_of_the_texts_only_those_that_rows_refer_to_stay(tmp_path):
    texts = [(1, "gemm"), (101, "void gemm<float>(int)"), (50, "cudaLaunchKernel_v7000"), (7, "my process")]
    path = nsys_file.write(tmp_path / "net.sqlite", StringIds=texts, **{
        KERNEL: [nsys_file.kernel(100, 5)], API: [nsys_file.call(20, 5)],
        "ThreadNames": [(7, 0, nsys_file.thread(7, 1))],
    })  # fmt: skip
    scrub(path, "-o", tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as db:
        assert db.execute("SELECT * FROM StringIds ORDER BY id").fetchall() == [texts[0], texts[2], texts[1]]


def captured(texts: list[str]) -> CapturedRecord:
    ranges = tuple(CapturedRange(1, 10 * number, 5, number) for number in range(len(texts)))
    return CapturedRecord(1, tuple(texts), (ranges,), tuple(("", "[0, 1]") for _ in texts))


@pytest.mark.parametrize("length", [60_000, 40])
def test_the_record_of_captured_graphs_is_cleaned_inside(length, tmp_path, monkeypatch):
    """It is compressed: in its Base64 a / begins what looks like a path, and what is private cannot be seen."""
    monkeypatch.setattr(range_pieces, "PIECE", length)
    calls = [f"aten::mm, op_id = 0, sizes = [[{number}, 4], [4, 4]]" for number in range(400)]
    record = captured([f"/home/{USER}/secretproject/train.py:12", *calls])
    pieces = pieces_of(captured_record.packed(record))
    assert (len(pieces) > 1) == (length == 40)
    texts = [(200 + piece.number, piece.text(CAPTURED_RANGE)) for piece in pieces]
    path = nsys_file.write(tmp_path / "net.sqlite", StringIds=[(1, "gemm"), (101, "gemm"), *texts], **{
        KERNEL: [nsys_file.kernel(100, 5)], NVTX: [push(number, number + 1, key)
                                                   for number, (key, _) in enumerate(texts)],
    })  # fmt: skip
    scrub(path, "-o", tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as db:
        kept = [
            piece_in(text, CAPTURED_RANGE)
            for (text,) in db.execute("SELECT value FROM StringIds WHERE id >= 200 ORDER BY id")
        ]
    found = captured_record.unpacked(kept)
    assert found == msgspec.structs.replace(record, texts=("train.py:12", *calls))


def test_a_record_that_lacks_a_piece_is_removed():
    one = Piece(0, 2, "abc").text(CAPTURED_RANGE)
    assert cleaned_records([one, "gemm", "pyprof.captured:clock:1"], Cleaner()) == {one: GONE}


def test_markers_keep_their_call_and_the_name_of_the_file(tmp_path, capsys):
    marker = json.dumps({"v": 1, "mod": "torch", "op": "mm", "args": [],
                         "trace": [f"/home/{USER}/secretproject/train.py:12", "/x/site-packages/torch/nn/f.py:3"]},
                        separators=(",", ":"))  # fmt: skip
    tables = {KERNEL: [nsys_file.kernel(100, 5)], API: [nsys_file.call(20, 5)], NVTX: [push(10, 90, marker)]}
    path, copy = nsys_file.write(tmp_path / "net.sqlite", **tables), tmp_path / "copy.sqlite"
    scrub(path, "-o", copy)
    assert held(copy) == []
    (before,), (after,) = csv_of(path, capsys), csv_of(copy, capsys)
    assert after["Op"] == before["Op"] == "mm"
    assert after["Trace"] == "train.py:12,/site-packages/torch/nn/f.py:3"
    scrub(path, "-o", copy, "--force", "--project", f"/home/{USER}")
    (after,) = csv_of(copy, capsys)
    assert after["Trace"].startswith("secretproject/train.py:12")


# Texts


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("aten::mm, seq = 3, sizes = [[2, 3]]", "aten::mm, seq = 3, sizes = [[2, 3]]"),
        ("void at::native::vectorized<4, (anonymous namespace)::F>(int)", None),
        ("layers/0/mlp and a / b, 1/2, and/or", None),
        ("nsys 2025.3.2.0, driver 570.172.08, ::ffff", None),
        ("/home/bob/net.py:3", "net.py:3"),
        ("net.py of /mnt/team/net.py", "net.py of net.py"),
        ("-I/home/bob/inc/a.h", "a.h"),
        ('{"trace":["C:\\\\Users\\\\bob\\\\net.py:3"]}', '{"trace":["net.py:3"]}'),
        ("\\\\server\\share\\net.py", "net.py"),
        ("file:///home/bob/x s3://bucket/key", "[address] [address]"),
        ("PATH=/usr/bin:/home/bob/bin", "[environment]"),
        ("bob@node.example.org", "[address]"),
        ("at 192.168.1.7:29500, 127.0.0.1", "at [address]:29500, 127.0.0.1"),
        ("fe80::1ff:fe23:4567:890a and 00:1b:44:11:3a:b7", "[address] and [address]"),
        ("MIG-1a2b3c4d-1111-2222-3333-444455556666", "[device]"),
        ("eos0470.eos.clusters.nvidia.com", "[host]"),
        ("/usr/lib/python3.11/threading.py", "/lib/python3.11/threading.py"),
        ("/opt/env/site-packages/torch/nn/modules/linear.py:125", "/site-packages/torch/nn/modules/linear.py:125"),
        ("/home/bob/mine/queue.py", "./queue.py"),  # queue.py alone would be the standard library's
        ("/root", "[path]"),
        ("nets/net.py(12): forward", "net.py(12): forward"),
        ("transformers/models/gpt2/modeling_gpt2.py(12): forward", None),
    ],
)
def test_what_remains_of_a_text(text, kept):
    assert Cleaner().text(text) == (text if kept is None else kept)


def test_files_of_different_folders_stay_different():
    cleaner = Cleaner()
    assert [cleaner.text(f"/a/{folder}/net.py:1") for folder in "xyx"] == ["net.py:1", "2/net.py:1", "net.py:1"]


def test_words_that_the_capture_calls_its_user_or_host_go_everywhere():
    cleaner = Cleaner()
    cleaner.learn_from(b'x\0USER=zoe\0HOSTNAME="gpu-box.lab"\0HOME=/home/zoe')
    assert cleaner.text("zoe_net on gpu-box, zoey") == "[name]_net on [name], zoey"
    cleaner.learn_from(b"USER=root HOME=/home/ubuntu HOSTNAME=localhost")  # tell nothing, and are no words to remove
    assert cleaner.text("root of ubuntu") == "root of ubuntu"


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/home/zoe/net.py", "net.py"), ("/root/net.py", "net.py"), ("C:\\Users\\zoe\\net.py", "net.py"),
     ("/home/zoe/nets/net.py", "nets/net.py"), ("/mnt/home/zoe/net.py", "net.py"), ("/data/net.py", "data/net.py"),
     ("a/b/net.py", "a/b/net.py")],
)  # fmt: skip
def test_no_output_shows_a_home_folder(path, shown):
    assert short_path(path) == shown
    assert short_line(f"{path}:7") == f"{shown}:7"


# Other forms


def planted_trace(path: Path) -> Path:
    args = {f"unknown {number}": text for number, text in enumerate(PLANTED)}
    args |= {"Concrete Inputs": list(PLANTED), "kernel_file": PLANTED[0], "stream": 7, "Input Dims": [[2, 3]]}
    events = [begin(0), op("aten::mm", 10, 50), call(20, 5), kernel(100, 10.125, 5)]
    for text in PLANTED:
        events += [x("user_annotation", text, 5, 80), x("cpu_op", text, 11, 2, **args), {"ph": "M", "name": text}]
        events.append({"ph": "M", "name": "process_name", "pid": 7, "args": {"name": text}, "more": text})
        events.append({**x("cpu_op", "aten::t", 12, 1), "pid": text, "tid": text, "args": {text: text}})
    header: dict[str, Any] = {f"key{number}": text for number, text in enumerate(PLANTED)}
    header |= {"host_name": HOST, "traceName": PLANTED[0], "nested": {"list": list(PLANTED)}, "ERROR": list(PLANTED)}
    header["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "uuid": PLANTED[5], "serial": USER}]
    return write_trace(path, *events, baseTimeNanoseconds=1_700_000_000_000_000_000, **header)


def test_no_secret_is_in_a_trace_s_copy(tmp_path, capsys):
    path, copy = planted_trace(tmp_path / "net.json"), tmp_path / "copy.json.gz"
    assert len(held(path)) >= len(SECRETS) - 1  # JSON writes backslashes and NUL with escapes
    scrub(path, "-o", copy)
    assert held(copy) == []
    kept = json.loads(gzip.decompress(copy.read_bytes()))
    assert kept["deviceProperties"] == [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]
    numbers = [{k: v for k, v in row.items() if k not in ("Trace", "Layer", "Range")} for row in csv_of(path, capsys)]
    assert numbers == [
        {k: v for k, v in row.items() if k not in ("Trace", "Layer", "Range")} for row in csv_of(copy, capsys)
    ]


def test_times_keep_all_their_digits(tmp_path):
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1700000000123456.789, "dur": 1.25}'
    text = f'{{"traceEvents": [{event}]}}'
    (tmp_path / "net.json").write_text(text)
    scrub(tmp_path / "net.json", "-o", tmp_path / "copy.json")
    assert "1700000000123456.789" in (tmp_path / "copy.json").read_text()


def test_no_secret_is_in_the_copy_of_rocprofv3_s_json(tmp_path, capsys):
    document = test_rocprof_json.document()
    document["metadata"] |= {"command": list(PLANTED), "hostname": HOST, "environment": ENVIRONMENT}
    document["agents"][1] |= {"uuid": PLANTED[5], "serial": TOKEN}
    document["strings"]["marker_api"].append({"key": 77, "value": PLANTED[0]})
    document["more"] = list(PLANTED)
    path, copy = test_rocprof_json.write(tmp_path / "net.json", document), tmp_path / "copy.json"
    scrub(path, "-o", copy)
    assert held(copy) == []
    assert csv_of(copy, capsys) == csv_of(path, capsys)


def test_no_secret_is_in_a_table_of_ncu_s_copy(tmp_path, capsys):
    rows = [[*launch(i, f"gemm /home/{USER}/secretproject/k.cu"), "1,536"] for i in range(2)]
    for row in rows:
        row[2], row[3] = f"python-{USER}", HOST
    text = raw([("gpu__time_duration.sum", "ns")], rows, f"==PROF== Connected to /home/{USER}/bin/python {TOKEN}\n")
    path, copy = tmp_path / "net.csv", tmp_path / "copy.csv"
    path.write_text(text)
    scrub(path, "-o", copy)
    assert held(copy) == []
    capsys.readouterr()
    found = []
    for file in (path, copy):
        assert main(["ncu", str(file), "--csv"]) == 0
        found.append(capsys.readouterr().out.replace(f"/home/{USER}/secretproject/", ""))
    assert found[0] == found[1]


@pytest.mark.parametrize("suffix", [".dict", ".dict.gz", ".parquet", ".pyprof"])
def test_no_secret_is_in_a_table_s_copy(suffix, tmp_path, capsys):
    path, copy = tmp_path / f"net{suffix}", tmp_path / f"copy{suffix}"
    (tmp_path / USER).mkdir()
    assert main(["parse", str(planted_trace(tmp_path / USER / "net.json")), "-o", str(path)]) == 0
    scrub(path, "-o", copy)
    assert [secret for secret in held(copy) if secret != "/home/"] == []
    drop = ("Trace", "Layer", "Range")
    before, after = (
        [{k: v for k, v in row.items() if k not in drop} for row in csv_of(f, capsys)] for f in (path, copy)
    )
    assert before == after


def test_no_secret_is_in_a_snapshot_s_copy(tmp_path, capsys):
    frames = [
        {**frame, "filename": f"/home/{USER}/secretproject/net.py"} if frame["line"] else frame for frame in FORWARD
    ]
    whole = snapshot([event("alloc", 0x1000, 512, 10, frames)], comment=list(PLANTED))
    (tmp_path / "net.pickle").write_bytes(pickle.dumps(whole, protocol=2))
    scrub(tmp_path / "net.pickle", "-o", tmp_path / "copy.pickle")
    assert held(tmp_path / "copy.pickle") == []
    assert main(["memory", str(tmp_path / "copy.pickle")]) == 0
    assert "512" in capsys.readouterr().out


# Numbers of real captures


@pytest.mark.parametrize("name", [
    "h200_lenet_init.sqlite.gz", "h200_gpt2_init.sqlite.gz", "h200_gpt2_cudagraph_node.sqlite.gz",
    "h200_lenet_fp32.json.gz", "h200_resnet50_bf16.json.gz", "memory/h200_lstm.json.gz",
    "compiled/gpt2_whole_compiled.json.gz", "graphs/h200_callables_early.sqlite.gz",
    "h200_tiny_pqtdir",
])  # fmt: skip
def test_every_number_of_a_capture_is_the_copy_s(name, tmp_path, capsys):
    path, copy = GOLDEN / name, tmp_path / "copy.gz"
    scrub(path, "-o", copy)
    before, after = csv_of(path, capsys), csv_of(copy, capsys)
    assert [{**row, "Trace": ""} for row in before] == [{**row, "Trace": ""} for row in after]
    for command in ("prof --summary --json", "stats --json", "replay --json", "memory --json"):
        found = []
        for file in (path, copy):
            first, *options = command.split()
            code = main([first, str(file), *options])
            document = json.loads(capsys.readouterr().out)
            found.append((code, _numbers({key: value for key, value in document.items() if key != "input"})))
        assert found[0] == found[1], command


def _numbers(tree: Any) -> Any:
    """The tree's numbers in their places; of its texts only that they are there."""
    if isinstance(tree, dict):
        return sorted(
            (("" if "/" in key or ".py" in key else key), repr(_numbers(value))) for key, value in tree.items()
        )
    if isinstance(tree, list):
        return [_numbers(value) for value in tree]
    return "text" if isinstance(tree, str) else tree


# The command


def command(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pyprof", "scrub", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
    )


def test_the_command_says_what_it_removed_and_searches_the_copy(tmp_path):
    done = command(planted_trace(tmp_path / "net.json"), "-o", tmp_path / "copy.json")
    assert done.returncode == 0, done.stderr
    assert "removed from what is kept: " in done.stderr
    assert "searched the copy: nothing private remains" in done.stderr


def test_what_remains_is_listed(tmp_path):
    """A kernel's name holds a word that is learned from the file after a letter, where it is part of another word."""
    path = tmp_path / "net.json"
    write_trace(path, begin(0), call(20, 5), kernel(100, 1, 5, name="fn_wonderland"), ERROR=["/home/wonderland/x"])
    done = command(path, "-o", tmp_path / "copy.json", "--json")
    assert json.loads(done.stdout)["remains"] == []
    assert "wonderland" not in (tmp_path / "copy.json").read_text()


def test_a_copy_is_not_overwritten_and_a_refused_file_leaves_none(tmp_path):
    (tmp_path / "kept.json").write_text("kept")
    done = command(GOLDEN / "h200_lenet_fp32.json.gz", "-o", tmp_path / "kept.json")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X"')
    done = command(tmp_path / "cut.json", "-o", tmp_path / "copy.json")
    assert done.returncode == 1
    assert "expected whole JSON" in done.stderr and done.stderr.count("\n") == 1
    assert (tmp_path / "kept.json").read_text() == "kept" and not (tmp_path / "copy.json").exists()


def test_arrow_s_metadata_is_not_copied(tmp_path):
    assert main(["parse", str(GOLDEN / "h200_lenet_fp32.json.gz"), "-o", str(tmp_path / "net.parquet")]) == 0
    table = parquet.read_table(tmp_path / "net.parquet")
    parquet.write_table(table.replace_schema_metadata({"made by": USER}), tmp_path / "net2.parquet")
    scrub(tmp_path / "net2.parquet", "-o", tmp_path / "copy.parquet")
    assert USER not in repr(parquet.read_table(tmp_path / "copy.parquet").schema.metadata)


def test_a_database_that_lacks_a_column_is_one_line(tmp_path):
    """Found by the fuzzer."""
    path = nsys_file.write(tmp_path / "net.sqlite", {"StringIds": "value"}, **{KERNEL: [nsys_file.kernel(100, 5)],
                           "StringIds": [(1, "gemm")]})  # fmt: skip
    done = command(path, "-o", tmp_path / "copy")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "table StringIds has no column value" in done.stderr
    assert not (tmp_path / "copy").exists()
