"""The examples in docstrings: each prints what it says."""

import doctest
import importlib

import pytest

import pyprof.prof.ops.families  # noqa: F401  (the examples look models up among those that are registered)
from tests.test_rooms import modules

WITH_EXAMPLES = [name for name, path in modules().items() if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{name} needs {error.name}")
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0
