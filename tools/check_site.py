"""Check the built site: each link of a page leads to a file and an anchor in it, and nothing is loaded from elsewhere.

    python tools/check_site.py [FOLDER]

Links to other sites are counted and not followed: the build needs no network.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}  # and <link>, but for its canonical


@dataclass
class Links(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    leads: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) == ("a", "href"):
                self.leads.append(value)
            elif (tag, name) in LOADED or (tag, name) == ("link", "href"):
                self.loads.append(value)


def main(argv: list[str]) -> int:
    site = Path(argv[0]).resolve() if argv else SITE
    pages = {file: read(file) for file in sorted(site.rglob("*.html"))}
    complaints = [f"{page.relative_to(site)}: {line}" for page in pages for line in check(page, pages)]
    links = [target for found in pages.values() for target in found.leads]
    others = sum(elsewhere(target) for target in links)
    print(
        "\n".join(complaints)
        or f"{len(pages)} pages, {len(links) - others:,} links within them, {others} to other sites"
    )
    return 1 if complaints or not pages else 0


def read(file: Path) -> Links:
    found = Links()
    found.feed(file.read_text(encoding="utf-8"))
    return found


def check(page: Path, pages: dict[Path, Links]) -> Iterator[str]:
    found = pages[page]
    for target in found.loads:
        if elsewhere(target):
            yield f"{target} is loaded from elsewhere"
    if page.name == "404.html":
        return  # its links begin at the server's root
    for target in [*found.leads, *found.loads]:
        if elsewhere(target):
            continue
        path, anchor = urldefrag(target)
        goal = (page.parent / unquote(path)).resolve() if path else page
        if goal.is_dir():
            goal = goal / "index.html"
        if not goal.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and goal in pages and unquote(anchor) not in pages[goal].anchors:
            yield f"the link {target} leads to no heading"


def elsewhere(target: str) -> bool:
    parts = urlsplit(target)
    return bool(parts.scheme or parts.netloc) and parts.scheme != "data"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
