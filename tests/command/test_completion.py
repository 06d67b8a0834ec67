"""pyprof completion: the scripts complete what the parsers take, in the shells themselves."""

import shutil
import subprocess

import pytest

from pyprof.cli import COMMANDS
from pyprof.completion import SCRIPTS, completed, main


@pytest.fixture(scope="module")
def commands():
    return [*completed()]


def printed(shell, capsysbinary):
    assert main([shell]) == 0
    return capsysbinary.readouterr().out.decode()


def test_every_command_and_option_is_there(commands):
    by_name = {command.name: command for command in commands}
    assert [*by_name] == [command.name for command in COMMANDS]
    names = {name: {word for option in command.options for word in option.names} for name, command in by_name.items()}
    assert {"--where", "--group", "--summary", "-o", "--output", "--json"} <= names["prof"]
    assert {"--fail-if", "--strict", "--html"} <= names["diff"]
    assert by_name["completion"].words == ("bash", "zsh", "fish")
    (trace,) = (option for option in by_name["run"].options if "--trace" in option.names)
    assert trace.takes_value and trace.choices == ("user", "all", "none")
    (quiet,) = (option for option in by_name["run"].options if "--quiet" in option.names)
    assert not quiet.takes_value


def bash(script, *words):
    """What bash offers for the last of these words."""
    call = f"""{script}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
_pyprof; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash(capsysbinary):
    script = printed("bash", capsysbinary)
    assert bash(script, "pyprof", "pl") == ["plot", "plan"]
    assert bash(script, "pyprof", "prof", "--whe") == ["--where"]
    assert bash(script, "pyprof", "run", "--trace", "") == ["user", "all", "none"]
    assert bash(script, "pyprof", "completion", "z") == ["zsh"]
    assert bash(script, "pyprof", "prof", "net") == []  # bash then offers names of files


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on this machine")
def test_zsh(capsysbinary, tmp_path):
    file = tmp_path / "_pyprof"
    file.write_text(printed("zsh", capsysbinary))
    checked = subprocess.run(["zsh", "-n", str(file)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    # compadd is what offers a word: print what would be offered
    call = f"""autoload -U compinit; compinit -u -d {tmp_path}/dump; source {file}
_describe() {{ print -l -- ${{commands%%:*}} }}
_arguments() {{ print -rl -- "$@" }}
words=(pyprof x) CURRENT=2; _pyprof; words=(pyprof diff x) CURRENT=3; _pyprof"""
    done = subprocess.run(["zsh", "-f", "-c", call], capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in {command.name for command in COMMANDS}] == [c.name for c in COMMANDS]
    assert any(line.startswith("*--fail-if[exit with 3 if this is true of the change\\: ") for line in lines)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_fish(capsysbinary, tmp_path):
    file = tmp_path / "pyprof.fish"
    file.write_text(printed("fish", capsysbinary))

    def offered(line):
        call = f"source {file}; complete -C '{line}'"
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["fish", "--no-config", "-c", call], capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return [word.partition("\t")[0] for word in done.stdout.splitlines()]

    assert set(offered("pyprof pl")) >= {"plan", "plot"}
    assert "--where" in offered("pyprof prof --whe")
    assert offered("pyprof run --trace ") == ["all", "none", "user"]
    assert "zsh" in offered("pyprof completion ")


@pytest.mark.parametrize("shell", [*SCRIPTS])
def test_a_help_with_quotes_stays_one_word(shell, commands):
    """No text of a help ends a quoted word: each line has an even number of single quotes."""
    assert all(line.count("'") % 2 == 0 for line in SCRIPTS[shell](commands).splitlines() if not line.startswith("#"))


def test_an_unknown_shell_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as usage:
        main(["powershell"])
    assert usage.value.code == 2
    assert "powershell" in capsys.readouterr().err
