"""pyprof mcp, driven by the SDK's own client: its answers are what the commands print."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.fuzz import oracle
from tests.paths import ROOT

pytest.importorskip("mcp", reason="the Model Context Protocol's SDK is not installed (pip install 'torch-pyprof[mcp]')")

GOLDEN = ROOT / "tests" / "golden"
GPT2, LENET, RESNET = "h200_gpt2_bf16.json.gz", "h200_lenet.sqlite.gz", "h200_resnet50_bf16.json.gz"
EAGER, COMPILED, PADDED = (f"h200_diff_{name}.json.gz" for name in ("eager", "compiled", "padded"))
PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
COLUMNS = "idx,step,layer,op,dir,kernel,sil,flops,bytes,tc,bound,sol"  # of `kernels`, unless the question names some
# A question, and the words of the command that answers it; names of files stand for those in the folder.
QUESTIONS = [
    ("summary", {"file": GPT2}, ["prof", "--json", "--summary", GPT2]),
    ("summary", {"file": LENET}, ["prof", "--json", "--summary", LENET]),
    ("group", {"file": GPT2, "by": "op,dir"}, ["prof", "--json", "--group", "op,dir", GPT2]),
    ("group", {"file": GPT2, "by": "layer", "layer_depth": 2},
     ["prof", "--json", "--group", "layer", "--layer-depth", "2", GPT2]),
    ("group", {"file": RESNET, "by": "kernel", "where": "tc == 1"},
     ["prof", "--json", "--group", "kernel", "--where", "tc == 1", RESNET]),
    ("group", {"file": RESNET, "by": "phase"}, ["prof", "--json", "--group", "phase", RESNET]),
    ("group", {"file": LENET, "by": "dir", "where": "op like '*conv*'"},
     ["prof", "--json", "--group", "dir", "--where", "op like '*conv*'", LENET]),
    ("kernels", {"file": GPT2, "rows": 7}, ["prof", "--json", "-c", COLUMNS, "--top", "7", GPT2]),
    ("kernels", {"file": GPT2, "rows": 5, "where": "op == 'linear' and dir == 'bprop'"},
     ["prof", "--json", "-c", COLUMNS, "--where", "op == 'linear' and dir == 'bprop'", "--top", "5", GPT2]),
    ("kernels", {"file": LENET, "rows": 4, "columns": "idx,kernel,sil", "sort": "-sil"},
     ["prof", "--json", "-c", "idx,kernel,sil", "--sort", "-sil", "--top", "4", LENET]),
    ("explain", {"file": GPT2, "row": 40}, ["prof", "--json", "--explain", "40", GPT2]),
    ("explain", {"file": LENET, "row": 1}, ["prof", "--json", "--explain", "1", LENET]),
    ("explain", {"file": RESNET, "row": 100}, ["prof", "--json", "--explain", "100", RESNET]),
    ("advise", {"file": GPT2}, ["prof", "--json", "--advise", GPT2]),
    ("advise", {"file": RESNET}, ["prof", "--json", "--advise", RESNET]),
    ("plan", {"file": EAGER}, ["plan", "--json", EAGER]),
    ("plan", {"file": EAGER, "without": "compile", "step_ms": 25},
     ["plan", "--json", "--without", "compile", "--step-ms", "25", EAGER]),
    ("diff", {"before": EAGER, "after": COMPILED}, ["diff", "--json", EAGER, COMPILED]),
    ("diff", {"before": EAGER, "after": PADDED, "fail_if": "step > 3%"},
     ["diff", "--json", "--fail-if", "step > 3%", EAGER, PADDED]),
    ("diff", {"before": PADDED, "after": EAGER, "step": "4-6"}, ["diff", "--json", "--step", "4-6", PADDED, EAGER]),
]  # fmt: skip


async def _asked(folders, questions, *options):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = ["-m", "pyprof", "mcp", *options, *map(str, folders)]
    program = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": PATH})
    async with stdio_client(program) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        if questions is None:
            return (await session.list_tools()).tools
        return [await session.call_tool(tool, arguments) for tool, arguments in questions]


def asked(folders, questions, *options):
    """The results of tool calls, or of the list of tools if ``questions`` is None, from one run of the server."""
    return asyncio.run(_asked(folders, questions, *options))


def content(result):
    """The answer's JSON object; both majors of the SDK give it as the text of one block."""
    assert not failed(result), result.content[0].text
    (block,) = result.content
    return json.loads(block.text)


def failed(result):
    return result.is_error if hasattr(result, "is_error") else result.isError


def printed(words):
    """What a command prints with --json, and its exit code."""
    done = oracle.run(words)
    return json.loads(done.out), done.code


@pytest.mark.slow
def test_twenty_questions_have_the_commands_answers():
    assert len(QUESTIONS) == 20
    results = asked([GOLDEN], [(tool, arguments) for tool, arguments, _ in QUESTIONS], "--rows", "100000")
    for (tool, arguments, words), result in zip(QUESTIONS, results, strict=True):
        expected, code = printed([str(GOLDEN / word) if word.endswith(".gz") else word for word in words])
        assert code in (0, 3), (tool, arguments)
        found = content(result)
        left_out = found.pop("left_out", None)
        assert found == expected, (tool, arguments)
        chosen = expected["selected"]["rows"] if tool == "kernels" else 0  # the command itself cuts these
        if chosen > arguments.get("rows", chosen):
            assert left_out == [{"list": "rows", "shown": arguments["rows"], "of": chosen}]
        else:
            assert left_out is None


def test_every_tool_says_that_it_only_reads():
    tools = asked([GOLDEN], None)
    assert [tool.name for tool in tools] == "captures summary group kernels explain advise plan diff".split()
    assert all(tool.annotations.model_dump(by_alias=True)["readOnlyHint"] for tool in tools)
    assert all(len(tool.description) > 40 for tool in tools)


def test_long_lists_are_cut_and_said_to_be(tmp_path):
    shutil.copy(GOLDEN / LENET, tmp_path)
    asking = {"file": LENET, "by": "kernel"}
    whole, cut, most = (
        content(result)
        for result in asked(
            [tmp_path], [("group", asking), ("group", {**asking, "rows": 3}), ("group", {**asking, "rows": 10_000})]
        )
    )
    assert "left_out" not in whole and whole == most
    of = len(whole["rows"])
    assert of > 3
    assert (cut["rows"], cut["columns"]) == (whole["rows"][:3], whole["columns"])
    assert {"list": "rows", "shown": 3, "of": of} in cut["left_out"]
    (small,) = asked([tmp_path], [("group", {**asking, "rows": 10_000})], "--rows", "2")
    assert len(content(small)["rows"]) == 2


def test_files_outside_of_the_folders_are_refused(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    shutil.copy(GOLDEN / LENET, outside / "secret.sqlite.gz")
    shutil.copy(GOLDEN / LENET, inside / "net.sqlite.gz")
    (inside / "link.sqlite.gz").symlink_to(outside / "secret.sqlite.gz")
    (inside / "job").mkdir()
    (inside / "job" / "rank0.sqlite.gz").symlink_to(outside / "secret.sqlite.gz")
    (inside / "hidden").mkdir()
    (inside / "hidden" / ".rank0.sqlite.gz").symlink_to(outside / "secret.sqlite.gz")
    (inside / "linked").mkdir()
    (inside / "linked" / "ranks").symlink_to(outside)
    names = [
        str(outside / "secret.sqlite.gz"),
        "../outside/secret.sqlite.gz",
        "link.sqlite.gz",
        "job",
        "hidden",
        "linked",
        ".",
        "no.sqlite",
    ]
    *refused, good, listed = asked(
        [inside],
        [
            *(("explain", {"file": name, "row": 1}) for name in names),
            ("explain", {"file": "net.sqlite.gz", "row": 1}),
            ("captures", {}),
        ],
    )
    assert all(failed(result) for result in refused)
    assert "found one outside of them" in refused[0].content[0].text
    assert all(str(inside) in result.content[0].text for result in refused[:6])
    assert content(good)["row"] == 1
    assert [file["file"] for file in content(listed)["files"]] == [str(inside / "net.sqlite.gz")]


def test_a_wrong_question_has_the_commands_message(tmp_path):
    shutil.copy(GOLDEN / LENET, tmp_path)
    wrong = [
        ("group", {"file": LENET, "by": "opp"}),
        ("kernels", {"file": LENET, "where": "op =="}),
        ("kernels", {"file": LENET, "columns": "--models=model.py"}),
        ("group", {"file": LENET, "by": "op", "where": "--models=model.py"}),
        ("explain", {"file": LENET, "row": 10_000}),
    ]
    texts = [result.content[0].text for result in asked([tmp_path], wrong) if failed(result)]
    assert len(texts) == len(wrong)
    assert "'opp' is no column: did you mean 'op'" in texts[0]
    assert "'--models=model.py' is no column" in texts[2]  # a value is never taken for an option
    assert "expected a row from 1 to" in texts[4]


def test_the_server_needs_a_folder_that_is_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pyprof", "mcp", str(tmp_path / "none")], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pyprof mcp: {tmp_path / 'none'}: expected a folder with captures, found nothing\n"
