"""The JSON document that `pyprof ncu -- COMMAND` prints with --json (pyprof/command/envelope.py adds the header)."""

from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc


class CountersTaken(Record):
    """What ncu measured of a program, and the program's exit code."""

    program: Annotated[list[Annotated[str, doc("a word")]], doc("the command that was measured, as given")]
    marked: Annotated[bool, doc("whether its PyTorch calls were marked: only those of a Python script can be")]
    exit_code: Annotated[int, doc("the command's: the program's, or 1 where only the measurement failed")]
    ncu: Annotated[str, doc("the ncu that measured")]
    metrics: Annotated[list[Annotated[str, doc("as ncu names it")]], doc("what it measured of each kernel")]
    kernels: Annotated[int, doc("that it measured")]
    passes: Annotated[int, doc("how often it ran each of them for that, at most")]
    outputs: Annotated[list[FileWritten], doc("the files written")]
