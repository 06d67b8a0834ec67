"""Which tests execute which line, and whether tests fail: each time in a fork of a process that has imported torch.

For `tools/run_mutants.py`. A fork begins with the packages that tests need and without pyprof, so that it imports the
mutated file as any process would.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

WARM = "torch torch.profiler numpy pandas pyarrow.parquet msgspec orjson jinja2 rich nvtx cxxfilt hypothesis".split()


def warm_up() -> None:
    """Import what tests need, but not pyprof; an import that a package lacks costs time in the forks, nothing else."""
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # pytest collects garbage at its end, and need not look through the modules imported here
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each costs time, and these tests need none


class Contexts:
    """A pytest plugin: coverage's context is the test, or the shared fixture in its setup. Keeps outcomes and times."""

    def __init__(self, cover: coverage.Coverage) -> None:
        self.cover, self.current = cover, ""
        self.fixtures: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def switch(self, name: str) -> str:
        before, self.current = self.current, name
        self.cover.switch_context(name)
        os.environ["MUTANTS_CONTEXT"] = name
        return before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
        before = self.switch(item.nodeid)
        result = yield
        self.switch(before)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        shared = fixturedef.scope != "function"
        before = self.switch(f"fixture {fixturedef.argname}") if shared else self.current
        result = yield
        self.switch(before)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def tests(self) -> dict[str, dict[str, Any]]:
        """Each test that passed: its seconds, and the contexts in which its code ran."""
        return {
            name: {
                "seconds": round(self.seconds[name], 4),
                "contexts": [name, *(f"fixture {fixture}" for fixture in self.fixtures[name])],
            }
            for name in sorted(self.passed - self.failed)
        }


def lines_by_context(data: coverage.CoverageData, tree: Path) -> dict[str, dict[str, list[int]]]:
    """context -> file -> its lines that were executed"""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name in data.measured_files():
        for line, contexts in data.contexts_by_lineno(name).items():
            for context in contexts:
                for part in context.split("|"):
                    found[part][os.path.relpath(name, tree)].append(line)
    return {context: dict(files) for context, files in found.items() if context}


def record(tree: Path, file: str, sources: list[str], folder: Path) -> dict[str, Any]:
    """Run one test file under coverage, its subprocesses too: tests, and lines by context."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "coverage.ini"
    settings.write_text(
        "[run]\nparallel = true\ncontext = ${MUTANTS_CONTEXT-}\nsource =\n"
        + "".join(f"    {tree / source}\n" for source in sources)
        + f"data_file = {folder / 'data'}\n"
    )
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    cover = coverage.Coverage(config_file=str(settings))
    plugin = Contexts(cover)
    _cover_subprocesses({"PYTHONPATH": str(site), "COVERAGE_PROCESS_START": str(settings)})
    cover.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", file], plugins=[plugin])
    cover.stop()
    cover.save()
    together = coverage.Coverage(config_file=str(settings))
    together.combine([str(folder)])
    lines = lines_by_context(together.get_data(), tree)
    return {"file": file, "code": int(code), "tests": plugin.tests(), "failed": sorted(plugin.failed), "lines": lines}


def _cover_subprocesses(outer: dict[str, str]) -> None:
    """Tests give subprocesses environments of their own: these words are added to each."""
    import subprocess

    begin = subprocess.Popen.__init__

    def covered(self: Any, *args: Any, **kwargs: Any) -> None:
        environment = dict(kwargs.get("env") or os.environ)
        path = os.pathsep.join(filter(None, (outer["PYTHONPATH"], environment.get("PYTHONPATH", ""))))
        environment |= {**outer, "PYTHONPATH": path, "MUTANTS_CONTEXT": os.environ.get("MUTANTS_CONTEXT", "")}
        begin(self, *args, **{**kwargs, "env": environment})

    subprocess.Popen.__init__ = covered  # type: ignore[method-assign]


class FirstFailure:
    """A pytest plugin that keeps the first test that failed."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def first_failure(tests: list[str]) -> dict[str, Any]:
    """Run these tests up to the first that fails: pytest's exit code, and that test."""
    plugin = FirstFailure()
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests], plugins=[plugin])
    return {"code": int(code), "by": plugin.name}


def collected(files: list[str]) -> list[str]:
    """The tests of these files. Python's and pytest's caches of the code are filled on the way."""
    plugin = Collected()
    pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *files], plugins=[plugin])
    return plugin.names


class Collected:
    """A pytest plugin that keeps the tests' names."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = [item.nodeid for item in session.items]


def in_fork(work: Callable[[], Any], limit_s: float, log: Path, cpu_s: float | None = None) -> Any:
    """What `work` returns (as JSON) in a fork; "timeout" or "crash" where it did not return.

    `limit_s` is by the clock; `cpu_s` is what the fork, and each process that it starts, may compute. The fork leads a
    session of its own, so that what it leaves behind ends with it.
    """
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        if cpu_s:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_s), math.ceil(cpu_s) + 1))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 1
        try:
            answer = json.dumps(work()).encode()
            with open(write, "wb", closefd=False) as pipe:
                pipe.write(answer)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    os.set_blocking(read, False)
    parts, end = [], time.monotonic() + limit_s
    answer: Any = "timeout"
    try:
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                part = os.read(read, 1 << 20)
                if not part:
                    answer = json.loads(b"".join(parts)) if parts else "crash"
                    break
                parts.append(part)
                continue
            time.sleep(0.005)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return "timeout" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU else answer
