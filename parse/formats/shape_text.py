"""Check the shapes and strides that profilers write, so that op models can rely on their form."""

from typing import Annotated

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Step = Annotated[int, msgspec.Meta(gt=-(1 << 62), lt=1 << 62)]
Sizes = list[list[Size | list[Size]]]  # one shape per argument; for a list of tensors, their shapes
Strides = list[list[Step | list[Step]] | None]

_Decoder = msgspec.json.Decoder[Sizes] | msgspec.json.Decoder[Strides]
_SIZES, _STRIDES = msgspec.json.Decoder(Sizes), msgspec.json.Decoder(Strides)


def as_sizes(text: str, decoder: _Decoder = _SIZES) -> str:
    """The text if it is a JSON list of shapes; or else an empty text, which means unknown.

    >>> as_sizes("[[2, 3], [[4], [5]]]"), as_sizes("[2]"), as_sizes("[[-1]]")
    ('[[2, 3], [[4], [5]]]', '', '')
    """
    try:
        decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return text


def as_strides(text: str) -> str:
    """The same check as ``as_sizes`` for strides."""
    return as_sizes(text, _STRIDES)
