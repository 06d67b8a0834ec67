"""docs/reference/json.md: the keys of each document that --json prints, from the classes of the documents.

    python tools/json_page.py [--write]

Without --write it says whether the page has the keys as they are.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pyprof.command.envelope import ANSWERS, Answer, schema_name  # noqa: E402
from pyprof.command.schemas import Header, schema_of  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "json.md"
KEYS = re.compile(r"(<!-- keys: made by tools/json_page.py -->\n).*?(<!-- /keys -->)", re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the keys of each document of --json to docs/reference/json.md.")
    parser.add_argument("--write", action="store_true", help="write the keys to the page")
    args = parser.parse_args(argv)
    page = PAGE.read_text(encoding="utf-8")
    keys = "\n".join(line for answer in ANSWERS for line in section(answer))
    new = KEYS.sub(lambda match: f"{match[1]}\n{keys}\n{match[2]}", page)
    if args.write:
        PAGE.write_text(new, encoding="utf-8")
    elif new != page:
        print(f"{PAGE.relative_to(ROOT)}: the keys have changed: run tools/json_page.py --write")
        return 1
    return 0


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
