"""The JSON that pyprof mcp --json prints in place of serving (pyprof/command/envelope.py adds the header)."""

from typing import Annotated

from pyprof.command.json_schema import Record, doc


class ServedTool(Record):
    name: Annotated[str, doc("of the tool")]
    description: Annotated[str, doc("what an agent is told of it")]


class Served(Record):
    """What the server would offer."""

    tools: Annotated[list[ServedTool], doc("what can be asked")]
    folders: Annotated[list[str], doc("whose files may be read, without links")]
    files: Annotated[int, doc("number of files in them, captures or not")]
    rows: Annotated[int, doc("the most items of a list in an answer")]
