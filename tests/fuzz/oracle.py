"""What must hold of a command, whatever its file holds: no traceback, one line for an error, whole outputs or none."""

import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

from pyprof.cli import main
from tests.fuzz.case import KEPT, Case
from tests.paths import GOLDEN

SECONDS = 20.0  # of processor time; the limit in SECURITY.md's sense is far below
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
GOOD = GOLDEN / "h200_lenet_fp32.json.gz"


class Ended(NamedTuple):
    """How a command ended."""

    code: int | None  # None: by an exception
    out: bytes
    err: str
    seconds: float  # of processor time


class Room:
    """A folder for cases: their file, their outputs, and a temporary folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.file, self.outputs, self.temporary = folder / "in", folder / "out", folder / "tmp"

    def clean(self) -> None:
        for part in (self.file, self.outputs, self.temporary):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        tempfile.tempdir = str(self.temporary)

    def words(self, case: Case) -> list[str]:
        """Write the case's file and what lies under its output's name; the command's words."""
        self.clean()
        file = self.file / case.name
        _write(file, case.content)
        words = [{"FILE": str(file), "GOOD": str(GOOD)}.get(word, word) for word in case.words]
        words = [str(self.outputs / word) if word.startswith("OUT.") else word for word in words]
        output = self.output(words)
        if output is None or case.output == "" or output.suffix == ".job":
            return words
        if output.suffix == ".pyprof":
            _write(output, {"meta.json": b'{"format": "pyprof/container", "version": 1}', "x": KEPT})
        else:
            output.write_bytes(KEPT)
        return [*words, "--force"] if case.output == "force" else words

    def output(self, words: list[str]) -> Path | None:
        return next((Path(word) for word in words if word.startswith(str(self.outputs))), None)


def _write(path: Path, content: bytes | dict[str, bytes]) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    path.mkdir()
    for name, inner in content.items():
        (path / name).write_bytes(inner)


def read(path: Path) -> bytes | dict[str, bytes]:
    """What lies there: a file's bytes, or a folder's files."""
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return path.read_bytes()


def run(words: list[str]) -> Ended:
    """Run a command in this process. Warnings of Python count as exceptions."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    before, began = (sys.stdout, sys.stderr), time.process_time()
    sys.stdout, sys.stderr = out, err
    code: int | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code = main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 -- whatever it is, it is a failure of this case
        err.write(traceback.format_exc())
    finally:
        sys.stdout, sys.stderr = before
    return Ended(code, out.buffer.getvalue(), err.getvalue(), time.process_time() - began)  # type: ignore[attr-defined]


def complaints(room: Room, case: Case, words: list[str], ended: Ended) -> list[str]:
    """What does not hold; empty if all does."""
    if ended.code is None or "Traceback" in ended.err:
        return ["traceback"]
    found = []
    if ended.seconds > SECONDS:
        found.append(f"took {ended.seconds:.0f} s")
    if ended.code not in (0, 1, 3) and not (ended.code == 2 and "--explain" in words):  # a row that the file lacks
        found.append(f"exit code {ended.code}")
    if "not enough memory" in ended.err:
        found.append("memory")
    if CONTROL.search(ended.err):
        found.append("control characters on standard error")
    if ended.code == 1 and "--json" not in words and ended.err.count("\n") != 1:
        found.append(f"{ended.err.count(chr(10))} lines for an error")
    found += _form_of_output(words, ended)
    if read(room.file / case.name) != case.content:
        found.append("the input file was changed")
    if left := os.listdir(room.temporary):
        found.append(f"left in the temporary folder: {left}")
    return found + _files(room, case, words, ended)


def _form_of_output(words: list[str], ended: Ended) -> list[str]:
    try:
        text = ended.out.decode("utf-8")
        if "--json" in words:
            json.loads(text, parse_constant=_refuse)
        elif "--jsonl" in words:
            for line in text.splitlines():
                json.loads(line, parse_constant=_refuse)
        elif ended.code == 1 and text:
            return ["an error and an output"]
        if "csv" not in " ".join(words) and CONTROL.search(text):
            return ["control characters on standard output"]
    except ValueError as error:
        return [f"standard output: {error}"[:200]]
    return []


def _refuse(word: str) -> None:
    raise ValueError(f"{word} in JSON")


def _files(room: Room, case: Case, words: list[str], ended: Ended) -> list[str]:
    output = room.output(words)
    if output is None:
        return [f"unasked files: {names}"] if (names := os.listdir(room.outputs)) else []
    others = [name for name in os.listdir(room.outputs) if name != output.name]
    if others:
        return [f"files beside the output: {others}"]
    if output.suffix == ".job":
        return []
    was_there = case.output != ""
    if ended.code == 1:
        if output.exists() != was_there:
            return ["a refused file changed the output's folder"]
        return [] if not was_there or KEPT in _contents(output) else ["a refused file overwrote the output"]
    if was_there and case.output == "kept":
        return ["an output was overwritten without --force"]
    return [] if output.exists() and _whole(output) else ["the output is missing or not whole"]


def _contents(path: Path) -> list[bytes]:
    found = read(path)
    return list(found.values()) if isinstance(found, dict) else [found]


def _whole(output: Path) -> bool:
    found = b"" if output.is_dir() else output.read_bytes()
    suffix = output.suffix
    if suffix == ".pyprof":
        return (output / "meta.json").is_file()
    if suffix == ".json":
        return json.loads(found, parse_constant=_refuse) is not None
    ends = {".html": b"</html>", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82", ".parquet": b"PAR1"}
    return found.rstrip(b"\n").endswith(ends.get(suffix, b"")) and KEPT not in found
