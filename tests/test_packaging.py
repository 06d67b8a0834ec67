"""The ways in: each import, -m, path and console script, from the checkout and elsewhere, however it is installed."""

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

HEAVY = {"torch", "pandas", "pyarrow", "numpy", "msgspec", "orjson", "nvtx", "jinja2", "rich", "dask", "matplotlib"}

IMPORTS = {
    "import pyprof": ["-c", "import pyprof; print(pyprof.__name__, pyprof.__version__)"],
    "import pyprof.parse": ["-c", "import pyprof.parse.cli as m; print(m.__name__)"],
    "import pyprof.prof": ["-c", "import pyprof.prof.cli as m; print(m.__name__)"],
}
MODULES = {f"-m {name}": ["-m", name, "--help"] for name in ("pyprof", "pyprof.parse", "pyprof.prof")}
PATHS = {f"by path: {name}": [f"{name}/{name}.py", "--help"] for name in ("parse", "prof")}
SCRIPTS = ("pyprof", "pyprof-parse", "pyprof-prof", "parse.py", "prof.py")
ANSWER = {
    "import pyprof": r"pyprof \d+\.\d+\.\d+",
    "import pyprof.parse": r"pyprof\.parse\.cli",
    "import pyprof.prof": r"pyprof\.prof\.cli",
    "-m pyprof": "usage: pyprof ",
    "-m pyprof.parse": r"usage: parse\.py ",
    "-m pyprof.prof": r"usage: prof\.py ",
    "by path: parse": r"usage: parse\.py ",
    "by path: prof": r"usage: prof\.py ",
    "pyprof": "usage: pyprof ",
    "pyprof-parse": r"usage: parse\.py ",
    "pyprof-prof": r"usage: prof\.py ",
    "parse.py": r"usage: parse\.py ",
    "prof.py": r"usage: prof\.py ",
}


@pytest.fixture(scope="module")
def checkout(root, tmp_path_factory) -> Path:
    """A copy: builds leave files behind, and another one may be running in the original."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("pyprof", "parse", "prof", "examples"):
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(root / file, copy)
    return copy


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def regular(checkout, tmp_path_factory) -> Path:
    home = environment(tmp_path_factory.mktemp("regular"))
    pip(home, str(checkout))
    return home


@pytest.fixture(scope="module")
def editable(checkout, tmp_path_factory) -> Path:
    home = environment(tmp_path_factory.mktemp("editable"))
    pip(home, "--editable", str(checkout))
    return home


def environment(home: Path) -> Path:
    """A virtual environment that has our dependencies and not us: plain .pth entries don't load editable installs."""
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in ours))
    return home


def pip(home: Path, *what: str) -> None:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin" / "python"),
        "install",
        *options,
        *what,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=clean())
    assert done.returncode == 0, done.stderr


def clean() -> dict[str, str]:
    """The environment without what would lead to another pyprof."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}


def answer(home: Path, words: list[str], cwd: Path) -> str:
    """The first line that a Python command prints, or its error."""
    command = [str(home / "bin" / "python"), "-W", "error", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=clean())
    return done.stdout.partition("\n")[0] if done.returncode == 0 else done.stderr


def by_path(words: list[str], checkout: Path) -> list[str]:
    return [str(checkout / words[0]), *words[1:]]


@pytest.mark.parametrize("place", ["checkout", "elsewhere"])
@pytest.mark.parametrize("install", ["regular", "editable"])
@pytest.mark.parametrize("way", ANSWER)
def test_installed_every_way_in_works_everywhere(way, install, place, checkout, tmp_path, request):
    home = request.getfixturevalue(install)
    if way in SCRIPTS:
        words = [str(home / "bin" / way), "--help"]
    elif way in PATHS:
        words = by_path(PATHS[way], checkout)
    else:
        words = {**IMPORTS, **MODULES}[way]
    got = answer(home, words, checkout if place == "checkout" else tmp_path)
    assert re.match(ANSWER[way], got), got


@pytest.mark.parametrize("way", [*IMPORTS, *MODULES, *PATHS])
def test_uninstalled_every_way_but_the_scripts_works_from_the_checkout(way, bare, checkout):
    got = answer(bare, {**IMPORTS, **MODULES, **PATHS}[way], checkout)
    assert re.match(ANSWER[way], got), got


@pytest.mark.parametrize("way", PATHS)
def test_uninstalled_the_path_works_from_elsewhere(way, bare, checkout, tmp_path):
    got = answer(bare, by_path(PATHS[way], checkout), tmp_path)
    assert re.match(ANSWER[way], got), got


def test_uninstalled_nothing_is_found_from_elsewhere(bare, tmp_path):
    """Otherwise the tests above prove nothing."""
    assert "ModuleNotFoundError" in answer(bare, IMPORTS["import pyprof"], tmp_path)


@pytest.mark.parametrize("name", ["parse", "prof"])
def test_a_second_identity_is_refused(name, bare, checkout):
    got = answer(bare, ["-c", f"import {name}"], checkout)
    assert f"import pyprof.{name}, not {name}" in got


@pytest.mark.parametrize("name", ["parse", "prof"])
def test_run_by_path_leaves_one_identity_and_not_the_folder_on_the_path(name, bare, checkout, tmp_path):
    """With parse/ on sys.path each of its modules could be imported a second time, as a top-level one."""
    code = (
        f"import runpy, sys; sys.path[0] = {str(checkout / name)!r}; sys.argv = ['{name}.py', '--version-unknown']\n"
        f"try: runpy.run_path({str(checkout / name / f'{name}.py')!r}, run_name='__main__')\n"
        f"except SystemExit as done: print(done.code, {str(checkout / name)!r} in sys.path, "
        f"'pyprof.{name}.cli' in sys.modules, 'cli' in sys.modules)"
    )
    assert answer(bare, ["-c", code], tmp_path) == "2 False True False"


def test_the_regular_install_holds_every_module_and_data_file(regular, root):
    (packages,) = regular.glob("lib/python*/site-packages")
    installed = {path.relative_to(packages).as_posix() for path in (packages / "pyprof").rglob("*")}
    missing = set()
    for package, folder in (("pyprof", "pyprof"), ("pyprof/parse", "parse"), ("pyprof/prof", "prof")):
        for path in (root / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                missing |= {f"{package}/{path.relative_to(root / folder).as_posix()}"} - installed
    assert missing == set()
    assert {"pyprof/py.typed", "pyprof/examples/lenet.py"} <= installed


def test_the_editable_install_is_the_checkout(editable, checkout, tmp_path):
    code = "import pyprof.parse.cli, pyprof.prof.cli; print(pyprof.parse.cli.__file__, pyprof.prof.cli.__file__)"
    files = f"{checkout / 'parse' / 'cli.py'} {checkout / 'prof' / 'cli.py'}"
    assert answer(editable, ["-c", code], tmp_path) == files


STARTS_CHILDREN = """
import multiprocessing, subprocess, sys, torch


def work(size):
    torch.ones(size).relu()


if __name__ == "__main__":
    for method in ("spawn", "fork"):
        child = multiprocessing.get_context(method).Process(target=work, args=(len(method),))
        child.start()
        print(method, child.pid)
        child.join()
    launched = subprocess.Popen([sys.executable, "-c", "import script; script.work(9)"])
    print("launched", launched.pid)
    launched.wait()
"""


@pytest.mark.slow
def test_run_of_an_editable_install_collects_spawned_forked_and_launched_children(editable, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(STARTS_CHILDREN)
    command = [str(editable / "bin" / "python"), "-m", "pyprof", "run", "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean(), timeout=300)
    assert done.returncode == 0, done.stderr
    children = dict(line.split() for line in done.stdout.splitlines())
    assert list(children) == ["spawn", "fork", "launched"]
    names = {f"net.{number}.json.gz": size for number, size in zip(children.values(), (5, 4, 9), strict=True)}
    assert set(re.findall(r"^pyprof run: wrote (.*)$", done.stderr, re.MULTILINE)) == set(names)
    assert {path.name for path in tmp_path.glob("*.gz")} == set(names)
    for name, size in names.items():
        with gzip.open(tmp_path / name, "rt") as text:
            events = json.load(text)["traceEvents"]
        calls = [event for event in events if event["name"] == "aten::relu"]
        assert [call["args"]["Input Dims"] for call in calls] == [[[size]]]


@pytest.mark.parametrize(
    "module", ["pyprof", "pyprof.cli", "pyprof.parse.cli", "pyprof.prof.cli", "pyprof.prof.plot.cli"]
)
def test_help_loads_nothing_heavy(module, bare, checkout):
    """0.3 s to start would be out of reach: torch alone takes seconds, pandas half of one."""
    code = (
        f"import contextlib, importlib, io, sys\nmodule = importlib.import_module({module!r})\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    getattr(module, 'main', list)(['--help'])\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = set(answer(bare, ["-c", code], checkout).split())
    assert "pyprof" in loaded
    assert loaded & HEAVY == set()


# What setup.py asks for, by the name that it is imported under.
IMPORT_NAME = {"adjusttext": "adjustText"}


@pytest.fixture(scope="module")
def asked_for(root) -> dict[str, set[str]]:
    """BASE, PLOT, ... of setup.py -> import names, read without running it."""
    lists = {}
    for node in ast.parse((root / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            (target,) = node.targets
            names = [re.match(r"[\w-]+", item.value)[0].lower() for item in node.value.elts]
            lists[target.id] = {IMPORT_NAME.get(name, name.replace("-", "_")) for name in names}
    return lists


def modules_of(root: Path) -> list[Path]:
    return [path for folder in ("pyprof", "parse", "prof") for path in sorted((root / folder).rglob("*.py"))]


def test_no_module_of_parse_or_prof_takes_a_name_of_the_library_or_of_a_dependency(root, asked_for):
    """Run by path, or with bin/ on the path, it would be found in place of the real one."""
    taken = sys.stdlib_module_names | set().union(*asked_for.values()) | {"torch"}
    ours = {path.stem for folder in ("parse", "prof") for path in (root / folder).rglob("*.py")}
    assert ours & taken == set()


def imports(path: Path) -> set[str]:
    """The modules (and what is taken out of them) that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def test_parse_imports_nothing_of_prof(root):
    files = [path for path in modules_of(root) if path.is_relative_to(root / "parse")]
    wrong = {(path.name, name) for path in files for name in imports(path) if f"{name}.".startswith("pyprof.prof.")}
    assert files
    assert wrong == set()


def test_every_import_is_of_a_declared_dependency(root, asked_for):
    allowed = sys.stdlib_module_names | asked_for["BASE"] | asked_for["PLOT"] | asked_for["CLUSTER"]
    allowed |= {"pyprof", "torch", "distributed", "pynvml"}  # nvidia-ml-py installs pynvml
    allowed |= {"mcp", "anyio"}  # the extra mcp, and what mcp itself is built on
    allowed |= {"transformers", "wandb", "prometheus_client"}  # the program's own: imported where it uses them
    firsts = {path: {name.partition(".")[0] for name in imports(path)} for path in modules_of(root)}
    assert {str(path): extra for path, words in firsts.items() if (extra := words - allowed)} == {}


def test_torch_is_never_a_dependency(asked_for):
    assert "torch" not in set().union(*asked_for.values())


def test_parse_and_prof_run_where_there_is_no_torch(bare, checkout):
    """Each of their modules is imported with torch made impossible to import."""
    names = [
        f"pyprof.{path.relative_to(checkout).with_suffix('').as_posix().replace('/', '.')}"
        for folder in ("parse", "prof")
        for path in sorted((checkout / folder).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]
    code = (
        "import importlib, sys; sys.modules['torch'] = None\n"
        f"for name in {names}: importlib.import_module(name)\nprint('all')"
    )
    assert answer(bare, ["-c", code], checkout) == "all"


def test_all_schemas_are_printed_where_there_is_no_torch(bare, checkout):
    """Those of pyprof bench, too, whose measurements need torch."""
    code = "import sys; sys.modules['torch'] = None; import pyprof.cli; sys.exit(pyprof.cli.main(['schema', '--json']))"
    assert answer(bare, ["-c", code], checkout).startswith('{"schema": "pyprof/schemas/1", ')


def test_the_installed_package_has_the_licences_of_its_parts(regular, root):
    (folder,) = regular.glob("lib/python*/site-packages/torch_pyprof-*.dist-info/licenses")
    found = {path.name for path in folder.rglob("*") if path.is_file()}
    vendored = {"echarts.LICENSE", "echarts.LICENSE-d3", "echarts.NOTICE", "zrender.LICENSE"}
    assert found == {"LICENSE", "NOTICE"} | vendored
    assert {path.name for path in (root / "prof/report/templates/vendor").iterdir()} > vendored


def test_importing_pyprof_imports_no_torch(bare, checkout):
    code = "import sys; sys.modules['torch'] = None; import pyprof, pyprof.capture.run; print(*dir(pyprof))"
    assert "__version__" in answer(bare, ["-c", code], checkout)
