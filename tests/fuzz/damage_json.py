"""Damage to JSON documents: to their values, to their structure, and to their text."""

import json
import re
from random import Random
from typing import Any

from tests.fuzz import values

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')
WORDS = (b"nan", b"-inf", b"Infinity", b"1e999", b"-1e999", b"0x1f", b"'a'", b"\\", b'"', b"[", b"]", b"{", b"}", b",",
         b"\xff\xfe", b"\xed\xa0\x80", b'"\\ud800"', b'"\\u0000"', b"01", b"9" * 400, b"[" * 2000, b'"\\x41"', b"//x\n",
         b'"a":', b"undefined", b"\0", b"\r\n", b"1.", b".5", b"+1", b'"C:\\Users\\me"', b'"say "hi""')  # fmt: skip


def damaged(content: bytes, random: Random) -> bytes:
    """The document's bytes after one to six changes."""
    if random.random() < 0.6 and len(content) < 100_000:
        tree = json.loads(content)
        for _ in range(random.choice((1, 1, 2, 6))):
            tree = change(tree, random)
        return written(tree, random)
    for _ in range(random.choice((1, 1, 2, 6))):
        content = _text(content, random)
    return content


def written(tree: Any, random: Random) -> bytes:
    """As a profiler may write it: on one line or many, ASCII or UTF-8, with NaN as Python prints it."""
    text = json.dumps(tree, indent=random.choice((None, None, 1)), ensure_ascii=random.random() < 0.7)
    return text.encode("utf-8", "surrogatepass")


def change(tree: Any, random: Random) -> Any:
    """The tree with one change somewhere in it."""
    path, node = [], tree
    while isinstance(node, dict | list) and node and (len(path) < 2 or random.random() < 0.8):
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return values.value(random)
    parent, key = path[-1]
    how = random.randrange(10)
    if how < 6:
        parent[key] = values.value(random, node)
    elif how == 6:
        del parent[key]
    elif how == 7 and isinstance(parent, list):
        parent[key:key] = [parent[key]] * random.choice((1, 2, 50))
    elif how == 8 and isinstance(parent, dict):
        parent[values.text(random, str(key))] = parent.pop(key)
    elif isinstance(parent, list):
        random.shuffle(parent)
    else:
        parent[key] = values.value(random, parent.get(random.choice(list(parent))))
    return tree


def _text(content: bytes, random: Random) -> bytes:
    """A change of the text, after which it may be no JSON any more."""
    at = random.randrange(len(content) + 1)
    token = TOKEN.search(content, at)
    if token is None:
        return content[:at]
    how = random.randrange(6)
    begin, end = token.span()
    if how < 2:
        return content[:begin] + random.choice(WORDS) + content[end:]
    if how == 2:
        return content[:begin] + json.dumps(values.value(random)).encode() + content[end:]
    if how == 3:
        return content[:begin] + content[end:]
    if how == 4:
        return content[:at] + random.choice(WORDS) + content[at:]
    other = TOKEN.search(content, random.randrange(len(content)))
    return content[:begin] + (other.group() if other else b"") + content[end:]
