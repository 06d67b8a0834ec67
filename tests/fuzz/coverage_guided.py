"""Coverage-guided fuzzing with atheris: the mender of broken JSON, and the reader of databases.

    python -m tests.fuzz.coverage_guided mender -runs=100000 corpus/
    python -m tests.fuzz.coverage_guided database -runs=20000 corpus/

atheris (PyPI, CPython 3.11 to 3.13 on Linux) is no dependency: install it beside pyprof. Options are libFuzzer's.
"""

import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["pyprof"]):
    from pyprof.errors import PyprofError
    from pyprof.parse.detect import reader
    from pyprof.parse.kineto import json_text, mend, wrong_fields  # noqa: F401
    from pyprof.parse.kineto import reader as kineto
    from pyprof.parse.tables.correlate import correlate

    for room in ("attribute", "formats", "graphs", "kineto", "nsys", "tables"):  # also what a function would import
        package = importlib.import_module(f"pyprof.parse.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

from tests.fuzz import damage_json, damage_sqlite
from tests.fuzz.seeds import seeds

FOLDER = Path(tempfile.mkdtemp(prefix="pyprof-fuzz-"))


def mender(data: bytes) -> None:
    """Text that need not be JSON is read event by event, or refused."""
    path = FOLDER / "net.json"
    path.write_bytes(data)
    try:
        mend.piecewise(path, data)
        correlate(kineto.read(path))
    except PyprofError:
        return


def database(data: bytes) -> None:
    """A database's bytes are read, or refused."""
    path = FOLDER / "net.sqlite"
    path.write_bytes(data)
    try:
        correlate(reader(path)(path))
    except PyprofError:
        return


def mutated_json(data: bytes, most: int, seed: int) -> bytes:
    random = Random(seed)
    if random.random() < 0.5:
        return bytes(atheris.Mutate(data, most))
    return damage_json._text(data or b"{}", random)[:most]


def mutated_database(data: bytes, most: int, seed: int) -> bytes:
    random = Random(seed)
    if len(data) < 512 or random.random() < 0.3:
        return bytes(atheris.Mutate(data, most))
    return damage_sqlite.damaged(data, random, FOLDER / "scratch")[:most]


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[bytes, int, int], bytes], tuple[str, ...]]] = {
    "mender": (mender, mutated_json, ("kineto",)),
    "database": (database, mutated_database, ("nsys", "nvprof", "rocpd", "rpd")),
}


def main() -> None:
    target, mutate, kinds = TARGETS[sys.argv.pop(1)]
    corpus = next((Path(word) for word in sys.argv[1:] if not word.startswith("-")), None)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            for number, seed in enumerate(seeds()[kind]):
                assert isinstance(seed.content, bytes)
                if len(seed.content) < 200_000:
                    (corpus / f"{kind}{number}").write_bytes(seed.content)
    atheris.Setup(sys.argv, target, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
