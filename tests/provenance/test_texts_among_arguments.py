"""Keywords that are texts stand among a recorded operation's arguments, in the schema's order."""

import pytest

torch = pytest.importorskip("torch")

from pyprof.provenance.decomposed_calls import in_order  # noqa: E402

GELU, SCATTER = torch.ops.aten.gelu.default, torch.ops.aten.scatter_reduce.two


def test_gelus_approximation_is_a_keyword():
    assert in_order(GELU, ("x",), {"approximate": "tanh"}) == ("x", "tanh")
    assert in_order(GELU, ("x",), {}) == ("x",)


def test_what_follows_a_text_gets_its_default():
    """scatter_reduce(self, dim, index, src, reduce, *, include_self=True)"""
    given = in_order(SCATTER, ("x", 0, "index", "src"), {"reduce": "amin"})
    assert given == ("x", 0, "index", "src", "amin", True)


def test_other_keywords_and_what_has_no_schema_stay_as_they_are():
    assert in_order(torch.ops.aten.add.Tensor, (1, 2), {"alpha": 3}) == (1, 2)
    assert in_order(len, (1,), {"approximate": "tanh"}) == (1,)
