"""What MkDocs does not do by itself for the site of docs/: mkdocs.yml names this file, MkDocs calls the on_ functions.

- Pages link to files outside of docs/: the README, the changelog, examples, tests. Each such file becomes a part of the
  site, Markdown as a page and anything else as plain text, below checkout/, and the links are rewritten to lead there.
  So they work on the site as they do in the checkout, also without a network.
- mkdocstrings finds sources by the package's name, and `pyprof.prof` lies in prof/: build/api has links under the names
  of the packages.
"""

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from check_docs import FENCE, LINK, ROOT
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

# MkDocs reads a page as HTML before it is Markdown, and some releases of Python's parser raise an error at <![ then.
MARKED_SECTION = re.compile(r"`([^`\n]*<![^`\n]*)`")
API = ROOT / "build" / "api" / "pyprof"


@event_priority(100)  # before mkdocstrings looks for them
def on_config(config: MkDocsConfig) -> None:
    """Lay the packages out as they are installed, for mkdocstrings."""
    shutil.rmtree(API, ignore_errors=True)
    API.mkdir(parents=True)
    for source in [*(ROOT / "pyprof").iterdir(), ROOT / "parse", ROOT / "prof"]:
        (API / source.name).symlink_to(source)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what the pages link to outside of docs/, and what those pages link to."""
    todo = [Path(file.abs_src_path) for file in files.documentation_pages()]
    seen = set(todo)
    while todo:
        for target in linked(todo.pop()):
            if target in seen:
                continue
            seen.add(target)
            uri = site_uri(target)
            if files.get_file_from_path(uri) is None:
                files.append(
                    File.generated(config, uri, content=target.read_bytes(), inclusion=InclusionLevel.NOT_IN_NAV)
                )
            if target.suffix == ".md":
                todo.append(target)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where the file stands on the site."""
    here = source(page.file.src_uri)
    out, end = [], 0
    for start, stop, text in links(markdown):
        goal = target_of(text, here)
        if goal is not None:
            anchor = text.partition("#")[1] + text.partition("#")[2]
            out += [
                markdown[end:start],
                posixpath.relpath(site_uri(goal), posixpath.dirname(page.file.src_uri)) + anchor,
            ]
            end = stop
    return MARKED_SECTION.sub(as_entities, "".join([*out, markdown[end:]]))


def as_entities(code: re.Match[str]) -> str:
    text = code[1].replace("\\|", "|")  # a table's cell has the bar escaped
    return f"<code>{''.join(char if char.isalnum() else f'&#{ord(char)};' for char in text)}</code>"


def linked(page: Path) -> Iterator[Path]:
    for _, _, text in links(page.read_text(encoding="utf-8")):
        goal = target_of(text, page)
        if goal is not None:
            yield goal


def links(markdown: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, target) of each link outside of blocks of code."""
    prose = FENCE.sub(lambda block: " " * len(block[0]), markdown)
    for match in LINK.finditer(prose):
        yield *match.span(1), match[1]


def target_of(text: str, page: Path) -> Path | None:
    """The file of the checkout that a relative link leads to; a folder is its README.md."""
    file = text.partition("#")[0]
    if not file or ":" in file:
        return None
    goal = Path(os.path.normpath(page.parent / file))
    goal = goal / "README.md" if goal.is_dir() else goal
    return goal if goal.is_file() and goal.is_relative_to(ROOT) else None


def site_uri(file: Path) -> str:
    """Where a file of the checkout stands in the site's sources."""
    path = file.relative_to(ROOT).as_posix()
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if file.suffix in (".md", ".png"):
        return f"checkout/{path}"
    return f"checkout/{path}.txt"


def source(uri: str) -> Path:
    """The other way round, of a page."""
    return ROOT / uri.removeprefix("checkout/") if uri.startswith("checkout/") else ROOT / "docs" / uri
