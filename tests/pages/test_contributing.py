"""CONTRIBUTING.md: the op model that it shows counts what the row beside it says."""

import re

from pyprof.prof.ops import model
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import FAMILY, MODELS, Tensor, Work
from tests.paths import ROOT

CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def t(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def test_the_example_of_an_op_is_right():
    function, row = CODE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    try:
        names = {**vars(model), "t": t}
        exec(function + row, names)  # noqa: S102 - the page's own code
        ((name, arguments, work),) = names["ROWS"]
        assert evaluate(name, arguments) == work == Work(60, 160, 80)
    finally:
        MODELS.pop("blend", None)
        FAMILY.pop("blend", None)
