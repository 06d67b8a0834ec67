"""docs/reference/json.md: the keys of each document that --json prints, from the classes of the documents.

    python tools/json_page.py [--write]

Without --write it says whether the page has the keys as they are.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pyprof.command.envelope import ANSWERS, Answer, schema_name  # noqa: E402
from pyprof.command.schemas import Header, schema_of  # noqa: E402
from tools.generated_page import write_or_check  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "json.md"
KEYS = re.compile(r"(<!-- keys: made by tools/json_page.py -->\n).*?(<!-- /keys -->)", re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    keys = "\n".join(line for answer in ANSWERS for line in section(answer))
    new = KEYS.sub(lambda match: f"{match[1]}\n{keys}\n{match[2]}", PAGE.read_text(encoding="utf-8"))
    return write_or_check(argv, __file__, "Write the keys of --json to docs/reference/json.md.", PAGE, new)


def section(answer: Answer) -> Iterator[str]:
    """A heading and a table of the document's own keys."""
    schema = schema_of(answer)
    yield f"### {schema_name(answer)}\n"
    yield f"Of {f'`pyprof {answer.command}`' if answer.command else 'any command'}. {schema['description']}\n"
    yield "| key | type | meaning |\n|---|---|---|"
    for key, value in schema["properties"].items():
        if key not in Header.__struct_fields__:
            yield f"| `{key}` | {type_of(value)} | {meaning_of(value)} |"
    yield ""


def type_of(schema: dict[str, Any]) -> str:
    """A key's type in words: "object or null", "list of strings"."""
    kinds = schema.get("type", "one of several objects" if "anyOf" in schema else "constant")
    names = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(list_of(schema) if name == "array" else name for name in names)


def list_of(schema: dict[str, Any]) -> str:
    items = schema.get("items", {}).get("type", "value")
    return f"list of {items}s" if isinstance(items, str) else "list"


def meaning_of(schema: dict[str, Any]) -> str:
    unit = f" ({schema['unit']})" if "unit" in schema else ""
    return f"{schema['description']}{unit}".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
