"""pyprof.marker: what is written is read back, old forms are read, and nothing broken raises."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.marker import MAX_TEXT, Marker, format_marker, parse_marker

TENSOR = {"name": "input", "type": "tensor", "shape": [64, 1024], "dtype": "float32"}


def test_text_is_the_design_s_example() -> None:
    marker = Marker(
        "torch.nn.functional",
        "linear",
        [TENSOR, {"name": "bias", "type": "NoneType", "value": None}],
        "bfloat16",
        ["net.py:41", "train.py:12"],
    )
    assert format_marker(marker) == (
        '{"v":1,"mod":"torch.nn.functional","op":"linear","args":[{"name":"input","type":"tensor","shape":[64,1024],'
        '"dtype":"float32"},{"name":"bias","type":"NoneType","value":null}],"autocast":"bfloat16",'
        '"trace":["net.py:41","train.py:12"]}'
    )


NAMES = st.text(max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)  # torch 2.4 flushes these to zero
VALUES = st.none() | st.booleans() | st.integers() | FLOATS | NAMES
ARGS = st.builds(
    lambda name, shape: {"name": name, "type": "tensor", "shape": shape, "dtype": "bfloat16"},
    NAMES,
    st.lists(st.integers(0, 2**40), max_size=6),
) | st.builds(lambda name, value: {"name": name, "type": "int", "value": value}, NAMES, VALUES)


@settings(max_examples=100)
@given(NAMES, NAMES, st.lists(ARGS, max_size=5), st.none() | st.just("float16"), st.lists(NAMES, max_size=4))
def test_round_trip(mod: str, op: str, args: list[dict[str, object]], autocast: str | None, trace: list[str]) -> None:
    marker = Marker(mod, op, args, autocast, trace)
    text = format_marker(marker)
    assert text.isascii() and "\n" not in text
    assert parse_marker(text) == marker


@settings(max_examples=200)
@given(st.text(max_size=80), st.sampled_from(["", '{"v":1', '{"v":1,"mod":', "{'", "{'mod': "]))
def test_any_text_gives_a_marker_or_none(text: str, start: str) -> None:
    assert isinstance(parse_marker(start + text), (Marker, type(None)))


BROKEN = [
    "",
    "aten::conv2d, seq = 940, op_id = 18619",
    "{ForeignNode[x]}",
    '{"v":1}',
    '{"v":1',
    '{"v":10,"mod":"a","op":"b","args":[]}',
    '{"v":1,"mod":1,"op":"b","args":[]}',
    '{"v":1,"mod":"a","op":"b","args":{}}',
    '{"v":1,"mod":"a","op":"b","args":[1]}',
    '{"v":1,"mod":"a","op":"b","args":[{"name":"x"}]}',
    '{"v":1,"mod":"a","op":"b","args":[{"name":"x","type":"tensor","shape":["1"],"dtype":"int8"}]}',
    '{"v":1,"mod":"a","op":"b","args":[{"name":"x","type":"tensor","shape":[true],"dtype":"int8"}]}',
    '{"v":1,"mod":"a","op":"b","args":[{"name":"x","type":"tensor","shape":[1],"stride":["1"],"dtype":"int8"}]}',
    '{"v":1,"mod":"a","op":"b","args":[{"name":"x","type":"tensor"}]}',
    '{"v":1,"mod":"a","op":"b","args":[],"trace":"x"}',
    '{"v":1,"mod":"a","op":"\\ud800","args":[]}',
    '{"v":1,"mod":' + "[" * 60_000,
    "{'mod': __import__('os').system('true'), 'op': 'x', 'args': []}",
    "{'mod': 'a', 'op': 'b', 'args': [" + "(" * 60_000,
    "{'mod': 'a', 'op': 'b', 'args': " + "-" * 60_000,
    "{'mod': 'a', 'op': 'b', 'args': [{'name': '', 'type': 'tensor', 'shape': (1,)}]}",
    "{'mod': '', 'op': ''}",
    "{'mod'}",
    '{"v":1,"op":"b","args":[]}',
    '{"v":1,"mod":"a","args":[]}',
    "{'mod': 'a', 'op': 'b', 'args': [{[]: 1}]}",
    "{'mod': 'a\\ud800', 'op': 'b', 'args': []}",
]


@pytest.mark.parametrize("text", BROKEN, ids=[str(i) for i in range(len(BROKEN))])
def test_broken_text_gives_none(text: str) -> None:
    assert parse_marker(text) is None


def test_pyprof_s_call() -> None:
    text = (
        "{'mod': 'Tensor', 'op': '__mul__', 'args': [{'name': '', 'type': 'tensor', 'shape': (35, 20, 200), "
        "'dtype': 'float32'}, {'name': '', 'type': 'float', 'value': 14.142135623730951}, "
        "{'name': 'dim', 'type': 'tuple', 'value': (1, 2)}]}"
    )
    assert parse_marker(text) == Marker(
        "Tensor",
        "__mul__",
        [
            {"name": "", "type": "tensor", "shape": [35, 20, 200], "dtype": "float32"},
            {"name": "", "type": "float", "value": 14.142135623730951},
            {"name": "dim", "type": "tuple", "value": [1, 2]},
        ],
    )


def test_pyprof_s_trace_and_module() -> None:
    trace = parse_marker("{'traceMarker': ['a.py:1', 'b.py:2'], 'funcStack': '/Net::forward/relu'}")
    assert trace == Marker("", "", trace=["a.py:1", "b.py:2"], func_stack="/Net::forward/relu")
    assert parse_marker("{'mod': 'Linear', 'strRepr': 'in_features=3'}") == Marker("Linear", "")


def test_function_stack_round_trip() -> None:
    marker = Marker("torch", "relu", func_stack="/main/Net::forward")
    assert parse_marker(format_marker(marker)) == marker


def test_long_text_is_cut_and_says_so() -> None:
    huge = {"name": "sizes", "type": "list", "value": list(range(100_000))}
    tensors = {"name": "tensors", "type": "list", "items": [dict(TENSOR) for _ in range(3_000)]}
    word = {"name": "s", "type": "str", "value": "x" * 99_999}
    text = format_marker(Marker("torch", "split", [TENSOR, huge, tensors, word]))
    assert len(text) <= MAX_TEXT
    marker = parse_marker(text)
    assert marker is not None
    assert marker.args == [
        TENSOR,
        {"name": "sizes", "type": "list", "len": 100_000},
        {"name": "tensors", "type": "list", "len": 3_000},
        {"name": "s", "type": "str", "cut": True},
    ]


def test_too_many_arguments_and_a_deep_trace_are_cut() -> None:
    args = [dict(TENSOR) for _ in range(5_000)]
    marker = Marker("torch", "f", args, None, ["some/long/path.py:1"] * 9_000)
    text = format_marker(marker)
    assert len(text) <= MAX_TEXT
    again = parse_marker(text)
    assert again is not None and again.args[-1] == {"name": "", "type": "...", "len": 5_000}
    assert json.loads(text)["trace"][0] == "some/long/path.py:1"
