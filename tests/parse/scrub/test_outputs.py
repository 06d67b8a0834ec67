"""What outputs say of the machine: nothing of the environment, no home folder, no host, and not where the file lay."""

import json
from pathlib import Path

import pytest

from pyprof.cli import main
from tests.parse.kineto.kineto_file import begin, call, kernel, op, x
from tests.parse.kineto.kineto_file import write as write_trace
from tests.parse.nsys import nsys_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, push
from tests.parse.scrub.test_scrub import ENVIRONMENT, HOST, TOKEN, USER, held

nsys_file.COLUMNS["META_DATA_CAPTURE"] = "name, value"
nsys_file.COLUMNS["PROCESSES"] = "globalPid, pid, name"


def nsys(folder: Path) -> Path:
    home = f"/home/{USER}"
    marker = json.dumps({"v": 1, "mod": "torch", "op": "mm", "args": [], "trace": ["nets/train.py:12"]})
    old = f"{{'traceMarker': ['{home}/x/site-packages/torch/f.py:3', '{home}/train.py:7'], 'funcStack': '/a'}}"
    return nsys_file.write(folder / "net.sqlite", **{
        KERNEL: [nsys_file.kernel(100, 5)], API: [nsys_file.call(20, 5)],
        NVTX: [push(8, 95, old), push(10, 90, marker.replace(" ", ""))],
        "META_DATA_CAPTURE": [("PROCESS_0:ENVIRONMENT", ENVIRONMENT), ("HOST", HOST)],
        "PROCESSES": [(nsys_file.process(7), 7, f"{USER}-{TOKEN}")],
        "DIAGNOSTIC_EVENT": [(0, 3, f"symbols found in {home}/env/lib/libcudnn.so are not complete")],
    })  # fmt: skip


def kineto(folder: Path) -> Path:
    frames = [x("python_function", f"/home/{USER}/train.py(12): step", 2, 80),
              x("python_function", f"C:\\Users\\{USER}\\net.py(3): forward", 4, 60)]  # fmt: skip
    events = [begin(0), *frames, op("aten::mm", 10, 50), call(20, 5), kernel(100, 10, 5)]
    header = {"host_name": HOST, "traceName": f"/home/{USER}/net.json", "environment": ENVIRONMENT}
    return write_trace(folder / "net.json", *events, **header)


@pytest.mark.parametrize("make", [nsys, kineto])
def test_outputs_say_nothing_of_the_machine(make, tmp_path, capsys, monkeypatch):
    (tmp_path / USER).mkdir()
    file = make(tmp_path / USER)
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(tmp_path / USER)
    for words in ("parse {} -o net.dict", "parse {} -o net.parquet", "parse {} -o net.pyprof", "parse {} -o net.csv",
                  "report {} -o net.html", "perfetto {} -o net.pftrace", "perfetto {} -o net2.json",
                  "plot timeline {} -o net.svg", "diff {} {} --html diff.html"):  # fmt: skip
        parts = [str(out / word) if word.startswith(("net", "diff.")) else word for word in words.split()]
        assert main([part.replace("{}", str(file)) for part in parts]) in (0, 1)
    for words in ("prof {} --csv -c all", "prof {} --jsonl", "prof {} --summary", "prof {} --advise", "stats {}",
                  "prof {} --summary --json", "replay {}"):  # fmt: skip
        capsys.readouterr()
        main([part.replace("{}", file.name) for part in words.split()])
        printed = capsys.readouterr()
        (out / f"{words.replace(' ', '_').replace('{}', '')}.txt").write_text(printed.out + printed.err)
    found = {each.name: secrets for each in sorted(out.iterdir()) if (secrets := held(each))}
    # `pyprof stats` and Perfetto's traces show the ranges' own texts: one of PyProf's old markers has whole paths.
    assert {name: secrets for name, secrets in found.items() if not name.startswith(("stats", "net2.json"))} == {}
