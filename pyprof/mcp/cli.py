"""The command pyprof mcp: answers questions of coding agents about captures, over standard input and output."""

from __future__ import annotations

import argparse

from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import require

ROWS, KEPT = 50, 4


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof mcp",
        description="A server of the Model Context Protocol over standard input and output, for coding agents. "
        "It reads captures in the named folders and answers with what prof.py, pyprof plan and pyprof diff print with "
        "--json. It writes nothing there. docs/how-to/mcp.md says how to register it.",
    )
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="+", help="files in these folders may be read, and no others"
    )
    rows = f"the most items of a list in an answer, which says what was left out (default: {ROWS})"
    parser.add_argument("--rows", metavar="N", type=whole_number(), default=ROWS, help=rows)
    kept = f"keep the last N captures in memory, read (default: {KEPT}; 0: none)"
    parser.add_argument("--keep", metavar="N", type=whole_number(0), default=KEPT, help=kept)
    add_json(
        parser, "in place of serving, one JSON object with the tools and the folders, errors too (pyprof schema mcp)"
    )
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof mcp", build_parser, _run, argv, inputs=("folders",))


def _run(args: argparse.Namespace) -> Done:
    require("mcp", "pyprof mcp needs the Model Context Protocol's SDK: pip install 'torch-pyprof[mcp]'")
    from pyprof.mcp.folders import Folders
    from pyprof.mcp.server import make_server, served
    from pyprof.prof.kept_files import keep_files

    folders = Folders(args.folders)
    if args.json:
        write_answer("served", served(folders, args.rows))
        return Done()
    with keep_files(args.keep):
        make_server(folders, args.rows).run("stdio")
    return Done()
