"""What the scripts share that make a page of the documentation: write it, or say that it is out of date."""

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(argv: list[str] | None, script: str, description: str, page: Path, text: str) -> int:
    """With --write, write the page. Without it, the exit code is 1 if the page has another text."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--write", action="store_true", help="write the page")
    if parser.parse_args(argv).write:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        print(f"{page.relative_to(ROOT)} is out of date: run tools/{Path(script).name} --write")
        return 1
    return 0
