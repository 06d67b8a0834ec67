"""A layer as a path of modules, independent of how the capture names it.

pyprof's ranges have every module from the root (`["GPT", "h.0", "h.0.attn"]`), Kineto has class and number
(`["Qwen2Model_0", "Qwen2DecoderLayer_3"]`), users may give one name (`["encoder.3.mlp"]`). All are split into parts,
outermost first; a number stays with the name before it.
"""

import json
import re

from pyprof.table.columns import Coded

PART = re.compile(r"[^.]+(?:\.\d+)*")


def layer_parts(text: str) -> tuple[str, ...]:
    """The parts of a layer column's text (JSON).

    >>> layer_parts('["GPT", "h.0", "h.0.attn"]'), layer_parts('["encoder.3.mlp"]'), layer_parts("")
    (('GPT', 'h.0', 'attn'), ('encoder.3', 'mlp'), ())
    """
    names = json.loads(text) if text else []
    parts: list[str] = []
    before = ""
    for name in names if isinstance(names, list) else ():
        if not isinstance(name, str):
            name = json.dumps(name)
        inside = name[len(before) + 1 :] if before and name.startswith(f"{before}.") else name
        parts += PART.findall(inside) if " " not in inside else [inside]
        before = name
    return tuple(parts)


def layer_texts(layers: Coded, depth: int | None = None) -> Coded:
    """The layer column's texts, with at most ``depth`` parts each (None: all), joined by ":"."""
    return Coded(layers.codes, [":".join(layer_parts(text)[:depth]) for text in layers.values])
