"""The statement and setup of ``pyprof bench``: the user's own Python code, run as ``python -m timeit`` runs it.

This is the one place where pyprof runs text as code. The text is what stands on the command line; nothing that was read
from a file comes here.

The code sees torch, F (torch.nn.functional), nn, math, the device, and the sweep's variables, and ``rand``, which makes
random tensors of the sweep's dtype, layout and alignment:

    rand(M, K)                     rand(M, K, dtype=torch.int8)        rand(8, 3, 224, 224, layout="channels_last")
"""

import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import torch

from pyprof.benchmark.bench import Subject
from pyprof.benchmark.sweep_axes import DTYPES
from pyprof.errors import PyprofError, UsageError
from pyprof.rerun.random_tensors import ALIGNMENT, random_tensor
from pyprof.rerun.recreate import tensors_in

FILE, SETUP = "<statement>", "<setup>"


class Statement:
    """A statement with its setup, compiled once."""

    def __init__(self, statement: str, setup: str, device: torch.device, backward: bool) -> None:
        self.text, self.device, self.backward = statement.strip(), device, backward
        self.setup = _compiled(setup, SETUP)
        try:
            self.code, self.is_expression = compile(self.text, FILE, "eval"), True
        except SyntaxError:
            self.code, self.is_expression = _compiled(statement, FILE), False

    def subject(self, variables: Mapping[str, Any]) -> Subject:
        """The call at one point of the sweep. The tensors and modules that the statement names are its arguments.

        Exceptions of the setup pass through (``users_code``).
        """
        names = {name: value for name, value in variables.items() if name not in ("dtype", "layout", "align")}
        dtype = getattr(torch, DTYPES[str(variables.get("dtype", "fp32"))])
        layout, align = str(variables.get("layout", "row")), int(variables.get("align", ALIGNMENT))
        rand = partial(
            random_tensor, dtype=dtype, layout=layout, align=align, device=self.device, requires_grad=self.backward
        )
        space: dict[str, Any] = {
            "torch": torch, "F": torch.nn.functional, "nn": torch.nn, "math": math, "device": self.device,
            "dtype": dtype, "layout": layout, "align": align, "rand": rand, **names,
        }  # fmt: skip
        exec(self.setup, space)  # noqa: S102  (the user's own code)
        used = {name: space[name] for name in _names(self.code) if name in space}
        taken = {name: value for name, value in used.items() if next(tensors_in(value), None) is not None}
        return Subject(self._function(tuple(taken), space), (), taken)

    def _function(self, names: tuple[str, ...], space: dict[str, Any]) -> Callable[..., Any]:
        """The statement as a function of the tensors and modules that it names."""
        if self.is_expression:
            # A function reads its arguments faster than names of a dictionary, and small calls take a microsecond.
            source = f"lambda {', '.join(names)}: (\n{self.text}\n)"
            return eval(compile(source, FILE, "eval"), space)  # type: ignore[no-any-return]  # noqa: S307  (the same)
        return lambda **arguments: exec(self.code, {**space, **arguments})  # noqa: S102  (the same)


def _names(code: CodeType) -> Iterator[str]:
    """The names that code reads from outside, with those in its comprehensions and functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@contextmanager
def users_code() -> Iterator[None]:
    """Report an exception of the user's code, which may be any, in one line, with the code's line number.

    Exceptions without a frame of that code are our own bugs, and pass through.
    """
    try:
        yield
    except PyprofError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (FILE, SETUP)]
        if not frames:
            raise
        line = (frames[-1].lineno or 1) - (frames[-1].filename == FILE and frames[-1].name == "<lambda>")
        first = next(iter(str(error).splitlines()), "")
        raise PyprofError(f"{frames[-1].filename} line {line}: {type(error).__name__}: {first[:200]}") from error


def _compiled(text: str, name: str) -> CodeType:
    try:
        return compile(text, name, "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"no Python code: {error}") from None
