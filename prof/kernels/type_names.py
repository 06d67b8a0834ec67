"""The spelling of types in kernel names, and what a name can reveal about an op's operands.

Names come in two spellings: as CUPTI and cu++filt demangle (``float const*``, ``{lambda(float)#1}``,
``(anonymous namespace)``, ``4``) and as nsys does (``const float *``, ``[lambda(float) (instance 1)]``, ``<unnamed>``,
``(int)4``). Both are read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyprof.dtypes import OF_CPP


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of an op's tensors as far as a kernel's name reveals them; empty where it does not.

    ``at``: dtypes by the argument's position in the aten op's schema. An empty dtype means that the name hides the
    operand's type (it is cast on load), so ``rest`` does not apply to it. ``rest``: the dtype of every other tensor.
    Neither applies to 0-dimensional tensors, which may be numbers of any type, except position 0 in ``at``. ``out``:
    the dtype of the (first) output, where the name distinguishes it from the inputs. ``flags``: non-tensor arguments
    that the choice of the kernel proves, such as batch norm's ``training``. ``lists``: how many lists a _foreach_ or
    _fused_ op takes.
    """

    rest: str = ""
    at: tuple[tuple[int, str], ...] = ()
    out: str = ""
    flags: tuple[tuple[int, bool], ...] = ()
    lists: int = 0

    def of(self, position: int) -> str:
        """The dtype of an argument, empty where not known."""
        return dict(self.at).get(position, self.rest)

    def hides(self, position: int) -> bool:
        """Whether the argument is cast on its way into the arithmetic."""
        return (position, "") in self.at

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Dtypes()


def merged(several: Iterable[Dtypes]) -> Dtypes:
    """Combine what the kernels of one op call reveal, in any order. Where two contradict each other, both are ignored:
    they work on different operands."""
    kernels = list(several)
    places = sorted({position for dtypes in kernels for position, _ in dtypes.at})
    at = tuple((i, _agreed(dict(dtypes.at).get(i, "") for dtypes in kernels)) for i in places)
    flags = {position: value for dtypes in kernels for position, value in dtypes.flags}
    lists = {dtypes.lists for dtypes in kernels if dtypes.lists}
    rest, out = (_agreed(getattr(dtypes, name) for dtypes in kernels) for name in ("rest", "out"))
    return Dtypes(rest, at, out, tuple(sorted(flags.items())), lists.pop() if len(lists) == 1 else 0)


def _agreed(dtypes: Iterable[str]) -> str:
    distinct = {dtype for dtype in dtypes if dtype}
    return distinct.pop() if len(distinct) == 1 else ""


_CASTS = re.compile(r"\((?:int|bool|unsigned int|long|unsigned long)\)(?=-?\d)")  # nsys: (int)4
_LAMBDA = re.compile(r"\[lambda(\((?:[^()]|\(\))*\)) \(instance (\d+)\)\]")
_DIGITS = re.compile(r"(?<=[<( ])(\d+)u?l*(?=[,>])")


def normal(name: str) -> str:
    """The name with its types in CUPTI's spelling, from either spelling."""
    text = _LAMBDA.sub(r"{lambda\1#\2}", _CASTS.sub("", name))
    return _DIGITS.sub(r"\1", text.replace("<unnamed>", "(anonymous namespace)").replace("operator ()", "operator()"))


def split(text: str) -> list[str]:
    """The parts between the commas at the top level."""
    parts, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        if char in "<({[":
            depth += 1
        elif char in ">)}]":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()] if text.strip() else []


def inside(text: str, opening: int) -> str:
    """The text between the bracket at ``opening`` and the matching one."""
    depth = 0
    for i in range(opening, len(text)):
        if text[i] in "<({[":
            depth += 1
        elif text[i] in ">)}]":
            depth -= 1
            if not depth:
                return text[opening + 1 : i]
    return text[opening + 1 :]


def parameters(text: str, match: re.Match[str]) -> list[str]:
    """The template parameters that follow ``match``, whose last character is their ``<``."""
    return split(inside(text, match.end() - 1))


_LAMBDAS = re.compile(r"\{lambda\(([^{}()]*)\)#\d+\}")


def lambdas(text: str) -> list[list[str]]:
    """The parameters of each lambda in a name."""
    return [split(found) for found in _LAMBDAS.findall(text)]


def dtype_at(words: list[str], index: int | None) -> str:
    return OF_CPP.get(words[index], "") if index is not None and index < len(words) else ""
