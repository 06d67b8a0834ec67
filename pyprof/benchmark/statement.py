"""The statement and setup of ``pyprof bench``: the user's own Python code, run as ``python -m timeit`` runs it.

This is the one place where pyprof runs text as code. The text is what stands on the command line; nothing that was read
from a file comes here.

The code sees torch, F (torch.nn.functional), nn, math, the device, and the sweep's variables, and ``rand``, which makes
random tensors of the sweep's dtype, layout and alignment:

    rand(M, K)                     rand(M, K, dtype=torch.int8)        rand(8, 3, 224, 224, layout="channels_last")
"""

import math
import traceback
from collections.abc import Mapping
from functools import partial
from types import CodeType
from typing import Any

import torch

from pyprof.benchmark.bench import Subject
from pyprof.benchmark.rotation import tensors_of
from pyprof.benchmark.sweep_axes import DTYPES
from pyprof.errors import PyprofError, UsageError
from pyprof.replay.random_tensors import ALIGNMENT, random_tensor

FILE = "<statement>"


class Statement:
    """A statement with its setup, compiled once."""

    def __init__(self, statement: str, setup: str, device: torch.device, backward: bool) -> None:
        self.text, self.device, self.backward = statement, device, backward
        try:
            self.setup = compile(setup, "<setup>", "exec")
            self.code = _compiled(statement)
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"no Python code: {error}") from None

    def subject(self, variables: Mapping[str, Any]) -> Subject:
        """The call at one point of the sweep. The tensors and modules that the statement names are its arguments."""
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
        self._run(self.setup, space)
        used = {name: space[name] for name in self.code.co_names if name in space}
        copied = {name: value for name, value in used.items() if next(tensors_of(value), None) is not None}
        return Subject(partial(self._run, self.code, space), (), copied)

    def _run(self, code: CodeType, space: dict[str, Any], /, **arguments: Any) -> Any:
        """Run the user's code. An error is told in one line, which names the line of the code."""
        try:
            return eval(code, {**space, **arguments} if arguments else space)  # noqa: S307  (the user's own code)
        except (PyprofError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001  (whatever the user's code raises)
            line = traceback.extract_tb(error.__traceback__)[1].lineno if error.__traceback__ else 1
            first = next(iter(str(error).splitlines()), "")
            raise PyprofError(f"{code.co_filename} line {line}: {type(error).__name__}: {first[:200]}") from error


def _compiled(statement: str) -> CodeType:
    """The code of an expression, or else of statements."""
    try:
        return compile(statement.strip(), FILE, "eval")
    except SyntaxError:
        return compile(statement, FILE, "exec")
