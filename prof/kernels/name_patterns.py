"""What a GPU kernel's name says: its family. The families are the three tables of ``family_tables``.

``HELPERS`` serve an op and do none of its arithmetic, ``PRODUCTS`` multiply matrices, ``OTHERS`` are the rest.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from pyprof.prof.kernels import family_tables

REACH = 400  # the most characters that a repetition may match; the longest word in real names has 300 (Tensile)


@dataclass(frozen=True)
class Pattern:
    """A regular expression that is tried only where a name contains one of ``texts``.

    ``texts``: for each alternative of the expression, a text that all its matches contain; empty if one has none. To
    look for them first takes a third of the time, because most names belong to no more than one row. Most expressions
    are never tried, so each is compiled when it first is.
    """

    expression: str
    texts: tuple[str, ...]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.expression)

    def search(self, name: str) -> re.Match[str] | None:
        if self.texts and not any(text in name for text in self.texts):
            return None
        return self.regex.search(name)


@dataclass(frozen=True, slots=True)
class Helper:
    """A kernel that serves an op: ``kind`` is reduce, layout, transform, fill, index, cast, epilogue or gates.

    ``work``: its kind of work as a family of op models; empty where other words of the name tell it.
    """

    kind: str
    work: str
    pattern: Pattern
    seen: str


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel that multiplies matrices.

    ``work``: its kind of work as a family of op models; empty where other words of the name tell it.
    ``unit``: ``tc`` (tensor or matrix cores), ``fma`` (no tensor cores), ``triton`` (not in the name; the dtype
    suggests it), ``unknown`` (a product whose unit is unknown).
    ``precision``: what enters, where the pattern fixes it. Else (empty) the pattern's group ``p`` names the type (f32
    there means none of the tensor cores), or (``scan``) the types in the whole template do.
    """

    work: str
    unit: str
    precision: str
    pattern: Pattern
    seen: str


@dataclass(frozen=True, slots=True)
class Other:
    """A kernel that is neither: ``work`` is its kind of work as a family of op models."""

    work: str
    pattern: Pattern
    seen: str


WORDS = {  # that patterns share
    "{X}": r"c?(?:bf16|tf32|f16|f32|f64|e4m3|e5m2|i8|u8|i32|u32|i4)",  # xmma's types
    "{T}": r"(?:bf16|fp16|f16|tf32|e4m3|e5m2|s8|u8|int8)",  # CUTLASS's, cuBLAS's
    "{OF}": r"(?:gemm|cudnn|fprop|dgrad|wgrad|conv)",  # what follows the shape of the instruction
    "{AT}": r"(?<![a-zA-Z0-9])",
    "{HOW}": r"(?:_(?:relu|optimized|analytic|fixed_channels|few_channels|strided))*",
    "{AI}": r"aiter(?:::|\d{1,3})",  # AITER's namespace, demangled or not
    "{MAKE}": r"_{0,2}(?:compute|prepare|fill|init|setup|set|get|make|build|create|count)",  # tables of a grouped GEMM
    "{PART}": r"(?:pointer|ptr|offset|size|shape|stride|start|arg|data|problem|tensor_?map|desc|meta|schedule)",
}
# torch.compile's fused code without a product: the ops in its name are those that it fused, or that stood next to it.
GENERATED = re.compile(r"^triton_(?:poi|per|red)_")


def rows(table: str) -> list[list[str]]:
    """The fields of each row of a table of ``family_tables``."""
    lines = re.sub(r"\n +", "  ", re.sub(r"\n +\|", "|", table)).splitlines()
    fields = (re.split(" {2,}", line) for line in lines if line and not line.startswith("#"))
    return [["" if field == "-" else field for field in row] for row in fields]


def _pattern(pattern: str) -> Pattern:
    """A pattern with bounded repetitions, since names from untrusted files must not take more than linear time."""
    for word, meaning in WORDS.items():
        pattern = pattern.replace(word, meaning)
    bounded = re.sub(r"(\\w|\[a-z\])([*+])", lambda m: f"{m[1]}{{{int(m[2] == '+')},{REACH}}}", pattern)
    return Pattern(bounded, _contained(bounded))


# The parts of a pattern outside of groups: an escape, a set, a repetition of what precedes, any other character
_PARTS = re.compile(r"\\.|\[[^\]]*\]|[*+?]|\{[\d,]+\}|.")


def _contained(pattern: str) -> tuple[str, ...]:
    """The longest plain text of each alternative outside of groups; empty if one has none of three characters.

    >>> _contained(r"fft[12]d_(?:r2c|c2r)_|flip_filter"), _contained(r"(?:a|b)c|def")
    (('fft', 'flip_filter'), ())
    """
    longest, text, depth = [""], "", 0
    for part in [*_PARTS.findall(pattern), "|"]:
        depth += (part == "(") - (part == ")")
        if depth == 0 and (part == "_" or part == ":" or part.isalnum()):
            text += part
            continue
        if depth == 0 and part[0] in "*?{":
            text = text[:-1]  # the repeated character may be missing
        longest[-1] = max(longest[-1], text, key=len)
        text = ""
        if part == "|" and depth == 0:
            longest.append("")
    longest.pop()
    return tuple(longest) if all(len(found) > 2 for found in longest) else ()


HELPERS = tuple(Helper(kind, work, _pattern(regex), seen) for kind, work, regex, seen in rows(family_tables.HELPERS))
PRODUCTS = tuple(
    Product(work, unit, precision, _pattern(regex), seen)
    for work, unit, precision, regex, seen in rows(family_tables.PRODUCTS)
)
OTHERS = tuple(Other(work, _pattern(regex.lower()), seen) for work, regex, seen in rows(family_tables.OTHERS))


@lru_cache(maxsize=65536)
def find_helper(name: str) -> Helper | None:
    """The row of the helper kernel that a name belongs to, or None."""
    return next((helper for helper in HELPERS if helper.pattern.search(name)), None)


@lru_cache(maxsize=65536)
def find_product(name: str) -> tuple[Product, re.Match[str]] | None:
    """The family of product kernels a name belongs to, and where it says so."""
    if GENERATED.match(name):
        return None
    matches = ((product, product.pattern.search(name)) for product in PRODUCTS)
    return next(((product, match) for product, match in matches if match), None)


@lru_cache(maxsize=65536)
def find_other(name: str) -> Other | None:
    """The row of the kernel that neither serves a product nor is one, or None."""
    lower = name.lower()
    return next((other for other in OTHERS if other.pattern.search(lower)), None)


def is_collective(name: str) -> bool:
    """Whether a kernel communicates: NCCL's, RCCL's, NVSHMEM's, DeepEP's and other families of ``family_tables``."""
    if name.startswith(("nccl", "rccl")):
        return True
    other = find_other(name) if find_helper(name) is None and find_product(name) is None else None
    return other is not None and other.work == "collective"


def stays_on_device(copy: str) -> bool:
    """Whether a copy reads and writes the memory of one GPU: ``[CUDA memcpy DtoD]``, ``Memcpy DtoD``."""
    return "Device-to-Device" in copy or "DtoD" in copy
