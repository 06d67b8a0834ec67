"""The texts of JSON lists, which columns such as ``op``, ``layer`` and ``trace`` hold in their cells."""

from __future__ import annotations

import json


def first_text(text: str) -> str:
    """The first item of a JSON list."""
    return list_texts(text)[0]


def list_texts(text: str) -> list[str]:
    """The items of a JSON list as texts; of an empty one or of what is no list, one empty text."""
    items = json.loads(text)
    if not isinstance(items, list) or not items:
        return [""]
    return [item if isinstance(item, str) else json.dumps(item) for item in items]
