"""The frame of our web pages: templates, our scripts and styles, and the content security policy.

A page is a single file that needs no other file and no network. Texts from a capture are escaped. If markup got through
nevertheless, the policy would allow only the page's own scripts, by their hashes, and no network connection.
"""

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOM = Path(__file__).resolve().parent  # each output has a folder with its own templates


def environment(output: str) -> Environment:
    """The templates of an output (``report`` or ``diff``) and the page that they extend.

    Every text is escaped, and a missing name is an error.
    """
    folders = [ROOM / output / "templates", ROOM / "templates"]
    return Environment(loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined)


def policy(scripts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def script(name: str) -> str:
    text = part(name)
    assert "</script" not in text.lower() and "<!--" not in text, name  # would end or break the enclosing element
    return text


@lru_cache(maxsize=32)
def part(name: str) -> str:
    return (ROOM / name).read_text(encoding="utf-8").replace("\r\n", "\n")
