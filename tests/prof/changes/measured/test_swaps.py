"""Which calls edits replace by which: from captures of an H200, by the text of the calls."""

import pytest

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.scenario import captured
from pyprof.prof.changes.measured.retimer import Retimer
from pyprof.prof.changes.measured.timed_call import LONGEST, TimedCall, channels_last
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.ops.model import Tensor
from pyprof.prof.planning.cli import load_base
from tests.paths import GOLDEN


def base_of(case):
    return load_base(str(GOLDEN / "advice" / f"{case}.before.json.gz"), None, lambda _: None)[1]


def edits(base, rule):
    return [each for each in EDIT_RULES[rule](captured(base)) if isinstance(each, Edit)]


def asked(case, rule):
    """The texts of the calls that the edits of a rule ask for."""
    base, retimer = base_of(case), Retimer({})
    for edit in edits(base, rule):
        retimer(edit, captured(base))
    return set(retimer.missing)


# The programs are in tests/device/advice_*.py; what they are when changed is there, too.
CASES = [
    ("lm_head", "alignment", "aten::mm(bfloat16[4096,768], bfloat16[768,50264 strides 1,768])"),
    ("lm_head", "alignment", "aten::mm(bfloat16[50264,4096 strides 1,50264], bfloat16[4096,768])"),
    ("held_mlp", "tf32", "aten::mm(float32[3072,2048], float32[2048,5120]) tf32"),
    ("mixed", "amp", "aten::mm(bfloat16[4096,1024], bfloat16[1024,4096])"),
    ("causal_attention", "attention", "attention(3 × bfloat16[8,12,1024,64], None, 0.1, True)"),
    ("causal_attention", "attention", "attention(3 × bfloat16[8,12,1024,64], None, 0.1, True) bprop"),
    ("flash_attention", "attention_backend", "attention(3 × bfloat16[8,16,4096,64], None, 0, True) bprop cudnn"),
    (
        "fixed_positions",
        "attention_backend",
        "attention(3 × bfloat16[16,8,512,64], bfloat16[1,8,512,512 no gradient], 0.1, False)",
    ),
    (
        "trained_positions",
        "attention_backend",
        "attention(3 × bfloat16[16,8,512,64], bfloat16[1,8,512,512], 0.1, False) bprop efficient",
    ),
    ("held_adamw", "optimizer", "adam([16 × float32[4096,1024]])"),
    ("vocabulary_loss", "cross_entropy", "cross_entropy(bfloat16[8192,50304], True) bprop compiled"),
    ("held_loss", "cross_entropy", "cross_entropy(bfloat16[8192,32000], False) compiled"),
    ("recurrent", "select_in_loop", "aten::stack([64 × bfloat16[256,2048]], 1)"),
    ("pageable", "pageable_copy", "copy of pinned memory(67108864)"),
    (
        "depthwise",
        "channels_last",
        "aten::convolution(bfloat16[64,256,56,56 strides 802816,1,14336,256], bfloat16[256,1,3,3 strides 9,1,3,1], "
        "None, 3 × [2 × 1], False, [2 × 0], 256)",
    ),
]


@pytest.mark.parametrize(("case", "rule", "text"), CASES)
def test_the_call_after_the_change(case, rule, text):
    assert text in asked(case, rule)


def test_equal_calls_are_asked_for_once():
    """Six layers in two steps: convolution and batch norm, forward and backward, before and after."""
    assert len(asked("depthwise", "channels_last")) == 8


def test_an_inner_op_is_part_of_its_outer_one():
    """_softmax_backward_data runs a mul, which is no call of its own."""
    assert not any(text.startswith("aten::mul(2 ×") for text in asked("attention", "attention"))


def test_a_long_name_ends_with_a_digest():
    shapes = tuple(Tensor((size, 8), "float32") for size in range(1, 200))
    first, second = (TimedCall("adam", (part,)).text for part in (shapes, shapes[:-1]))
    assert len(first) <= LONGEST + 4 and first != second and "sha256" in first


@pytest.mark.parametrize(("shape", "strides"), [((2, 3, 4, 5), (60, 1, 15, 3)), ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3))])
def test_strides_of_channels_last(shape, strides):
    assert channels_last(shape) == strides
