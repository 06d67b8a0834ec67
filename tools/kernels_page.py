"""docs/reference/kernels.md: the families of kernels that are recognised by name, out of their tables.

    python tools/kernels_page.py [--write]

Without --write it says whether the page still is what the tables give.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pyprof.prof.kernels import family_tables  # noqa: E402
from pyprof.prof.kernels.name_patterns import HELPERS, OTHERS, PRODUCTS, WORDS, Product, rows  # noqa: E402
from pyprof.prof.work.kinds import kind_of_work  # noqa: E402
from tools.generated_page import write_or_check  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "kernels.md"
HEAD = """# Kernels: the families that are recognised by name

<!-- made by tools/kernels_page.py out of prof/kernels/family_tables.py: change a row there, not this page -->

A kernel's kind of work is that of its op where the capture has one. Where it has none, and for tensor cores and roles
in any case, the kernel's name decides. The three tables below are searched in this order: helpers, products, others. In
each, the first row from the top whose pattern (a Python regular expression) occurs anywhere in the name decides. A name
that no row matches is of the kind `other`, and nothing more is said of it. Names come with template arguments where the
capture has them.

The source says where a pattern comes from: GPUs and library of a capture that holds such a name, or the repository and
path of the code that spells it.
"""
HELPER_HEAD = """
## Helpers: kernels that serve a product and do none of its arithmetic

Their role is `aux`, and they use no tensor cores. Kind `(name)`: other words of the name tell whether it is attention,
a convolution or a GEMM.

| helper | kind of work | pattern | source |
|---|---|---|---|
"""
PRODUCT_HEAD = """
## Products: kernels that multiply matrices

Their role is `main`. Tensor cores (AMD: matrix cores): `yes`, `no`, `unknown`, or `by dtype` for Triton, whose compiler
decides; `tc` then is a guess from the dtype. Precision of the multiplied values: a word, `in name` (the pattern's group
`p`), `in template` (the narrowest type among the template's arguments), `letters` (Tensile's letters of types).

| kind of work | tensor cores | precision | pattern | source |
|---|---|---|---|---|
"""
OTHER_HEAD = """
## Others

Upper and lower case are the same in these patterns.

| kind of work | pattern | source |
|---|---|---|
"""
WORD_HEAD = """
## Words that patterns share

| word | meaning |
|---|---|
"""
UNITS = {"tc": "yes", "fma": "no", "triton": "by dtype", "unknown": "unknown"}
PRECISIONS = {"scan": "in template", "tensile": "letters"}


def main(argv: list[str] | None = None) -> int:
    return write_or_check(argv, __file__, "Make docs/reference/kernels.md out of the tables of families.", PAGE, page())


def page() -> str:
    """The page's text."""
    return "".join(
        (HEAD, HELPER_HEAD, *_helpers(), PRODUCT_HEAD, *_products(), OTHER_HEAD, *_others(), WORD_HEAD, *_words())
    )


def _helpers() -> Iterator[str]:
    for row, (_, _, pattern, _) in zip(HELPERS, rows(family_tables.HELPERS), strict=True):
        yield _line(row.kind, kind_of_work(row.work) or "(name)", _code(pattern), _text(row.seen))


def _products() -> Iterator[str]:
    for row, (_, _, _, pattern, _) in zip(PRODUCTS, rows(family_tables.PRODUCTS), strict=True):
        yield _line(
            kind_of_work(row.work) or "(name)", UNITS[row.unit], _precision(row), _code(pattern), _text(row.seen)
        )


def _precision(row: Product) -> str:
    if row.unit in ("fma", "unknown"):
        return ""
    in_name = "in name" if "p" in row.pattern.regex.groupindex else ""
    return PRECISIONS.get(row.precision, row.precision) or in_name


def _others() -> Iterator[str]:
    for row, (_, pattern, _) in zip(OTHERS, rows(family_tables.OTHERS), strict=True):
        yield _line(kind_of_work(row.work), _code(pattern), _text(row.seen))


def _words() -> Iterable[str]:
    return (_line(_code(word), _code(meaning)) for word, meaning in WORDS.items())


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _text(source: str) -> str:
    """A source in which nothing is markup."""
    return re.sub(r"([|*_<\\`\[\]])", r"\\\1", source)


def _code(pattern: str) -> str:
    """A pattern as code in a table's cell, where a bar has to be escaped."""
    return f"`{pattern}`".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
