"""The command pyprof completion: a script for bash, zsh or fish, made from the parsers of the commands themselves."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

from pyprof.cli import COMMANDS
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.json_schema import Record, doc
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.files import open_output


class Script(Record):
    """A shell's completion."""

    shell: Annotated[str, doc("bash, zsh or fish")]
    script: Annotated[str, doc("what the shell is to run")]


class Option(NamedTuple):
    """An option of a command."""

    names: tuple[str, ...]  # -o, --output
    takes_value: bool
    choices: tuple[str, ...]  # of its value, if there are only these
    help: str


class Completed(NamedTuple):
    """What can be completed after the name of a command."""

    name: str
    does: str
    options: tuple[Option, ...]
    words: tuple[str, ...]  # the choices of its arguments; empty: names of files


def build_parser() -> Parser:
    shells = ", ".join(SCRIPTS)
    parser = Parser(
        prog="pyprof completion",
        description="Print a script that completes pyprof's commands and options. bash and zsh: put "
        "`source <(pyprof completion bash)` into .bashrc, or zsh into .zshrc. fish: "
        "`pyprof completion fish > ~/.config/fish/completions/pyprof.fish`.",
    )
    parser.add_argument("shell", choices=[*SCRIPTS], metavar="SHELL", help=shells)
    add_json(parser)
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof completion", build_parser, _run, argv, inputs=())


def _run(args: argparse.Namespace) -> Done:
    script = SCRIPTS[args.shell]([*completed()])
    if args.json:
        write_answer("completion", Script(shell=args.shell, script=script))
    else:
        with open_output(None) as out:
            out.write(script.encode())
    return Done()


def completed() -> Iterator[Completed]:
    """The commands, with the options that their parsers have now."""
    for command in COMMANDS:
        parser = importlib.import_module(command.module).build_parser()
        actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        options = tuple(_option(action) for action in actions if action.option_strings)
        words = tuple(str(word) for a in actions if not a.option_strings for word in a.choices or ())
        yield Completed(command.name, command.does, options, words)


def _option(action: argparse.Action) -> Option:
    text = (action.help or "").replace("%%", "%")
    choices = tuple(map(str, action.choices or ()))
    return Option(tuple(action.option_strings), action.nargs != 0, choices, text)


def bash(commands: list[Completed]) -> str:
    cases = "\n".join(f"    {command.name}) {_bash_case(command)} ;;" for command in commands)
    names = " ".join(command.name for command in commands)
    return f"""\
# pyprof's completion for bash: source <(pyprof completion bash)
_pyprof() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options="" values="" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *)
      if [ -n "$values" ]; then COMPREPLY=($(compgen -W "$values" -- "$word"))
      elif [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word"))
      fi ;;
  esac
}}
complete -o default -F _pyprof pyprof
"""


def _bash_case(command: Completed) -> str:
    """What sets the options, the values after the option before, and the words of a command."""
    options = " ".join(name for option in command.options for name in option.names)
    parts = [f'options="{options}"']
    parts += [f'words="{" ".join(command.words)}"'] if command.words else []
    chosen = [option for option in command.options if option.choices]
    if chosen:
        cases = " ".join(f'{"|".join(option.names)}) values="{" ".join(option.choices)}" ;;' for option in chosen)
        parts.append(f'case "$before" in {cases} esac')
    return "; ".join(parts)


def zsh(commands: list[Completed]) -> str:
    listed = "\n".join(f"    {_quoted(f'{command.name}:{command.does}')}" for command in commands)
    cases = "\n".join(f"    {command.name})\n      _arguments -s \\\n{_zsh_case(command)} ;;" for command in commands)
    return f"""\
#compdef pyprof
# pyprof's completion for zsh: source <(pyprof completion zsh)
_pyprof() {{
  local -a commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{cases}
  esac
}}
compdef _pyprof pyprof
"""


def _zsh_case(command: Completed) -> str:
    lines = [_zsh_option(name, option) for option in command.options for name in option.names]
    words = f"'*:word:({' '.join(command.words)})'" if command.words else "'*:file:_files'"
    return " \\\n".join(f"        {line}" for line in [*lines, words])


def _zsh_option(name: str, option: Option) -> str:
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    return _quoted(f"*{name}[{text}]{value}")


def fish(commands: list[Completed]) -> str:
    lines = ["# pyprof's completion for fish: pyprof completion fish > ~/.config/fish/completions/pyprof.fish"]
    for command in commands:
        here = f"complete -c pyprof -n '__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c pyprof -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.does)}")
        lines += [f"{here} {_fish_option(option)}" for option in command.options]
        if command.words:
            lines.append(f"{here} -f -a {_quoted(' '.join(command.words))}")
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    """Long names after -l, one letter after -s, and old-style long ones after -o; -r: it takes a value."""
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-{'so'[len(name) > 2]} {name[1:]}" for name in option.names
    ]
    chosen = [f"-x -a {_quoted(' '.join(option.choices))}"] if option.choices else ["-r"] * option.takes_value
    return " ".join([*names, *chosen, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """The text as one word of a shell; fish reads \\\\ within single quotes as one backslash, bash and zsh as two."""
    one_line = " ".join(text.split())
    return "'" + one_line.replace("'", "’") + "'"


SCRIPTS: dict[str, Callable[[list[Completed]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
