"""The documentation as a site: what it adds to MkDocs. (That it is built and its links lead somewhere: `make docs`.)"""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import pyprof
from pyprof.marker import VERSION as MARKER_VERSION
from pyprof.table.container import VERSION as CONTAINER_VERSION
from pyprof.table.parquet import SCHEMA_VERSION


def tool(root: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """A script of tools/, which imports others of them by name, as MkDocs and Python do."""
    monkeypatch.syspath_prepend(str(root / "tools"))
    spec = importlib.util.spec_from_file_location(name, root / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooks(root, monkeypatch):
    pytest.importorskip("mkdocs", reason="MkDocs is not installed (the extra docs)")
    return tool(root, "site_hooks", monkeypatch)


class Rendered:
    """As much of a page of MkDocs as the hook looks at."""

    def __init__(self, uri: str) -> None:
        self.file = type("File", (), {"src_uri": uri})()


@pytest.mark.parametrize(
    ("page", "text", "there"),
    [
        ("index.md", "[a](tutorial.md#1-install-it)", "[a](tutorial.md#1-install-it)"),
        ("index.md", "[a](../README.md)", "[a](checkout/README.md)"),
        ("reference/ops.md", "[a](../../tests/paths.py)", "[a](../checkout/tests/paths.py.txt)"),
        ("how-to/own-op.md", "[a](../../examples/README.md#x)", "[a](../checkout/examples/README.md#x)"),
        ("checkout/README.md", "[a](docs/how-to/diff.md)", "[a](../how-to/diff.md)"),
        ("checkout/README.md", "![a](docs/images/report.png)", "![a](../images/report.png)"),
        ("checkout/examples/README.md", "[a](ddp.py)", "[a](ddp.py.txt)"),
        ("index.md", "[a](https://example.org/README.md) [b](#here) [c](gone.md)", None),  # MkDocs judges these
        ("index.md", "```text\n[a](../README.md)\n```\n", None),
        ("index.md", "a `|` of 4 \\| `(?<![a-z])x\\|y`", None),
    ],
)
def test_links_lead_to_where_the_file_stands_on_the_site(hooks, page, text, there):
    if "<![" in text:  # as character references, since Python's parser of HTML raises an error there
        there = text.partition("`(")[0] + (
            "<code>&#40;&#63;&#60;&#33;&#91;a&#45;z&#93;&#41;x&#124;y</code>"  # ( ? < ! [ - ] ) |
        )
    assert hooks.on_page_markdown(text, Rendered(page), None, None) == (there or text)


SITE = {
    "index.html": '<a href="a/b.html#here">b</a><img src="i.png"><a href="https://example.org">x</a>',
    "a/b.html": '<h1 id="here">b</h1><a href="../index.html">home</a><a href="#here">up</a>',
    "i.png": "",
}


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("index.html", SITE["index.html"], None),
        ("index.html", '<a href="a/c.html">c</a>', "the link a/c.html leads nowhere"),
        ("index.html", '<a href="a/b.html#gone">b</a>', "the link a/b.html#gone leads to no heading"),
        ("index.html", '<script src="https://cdn.example.org/x.js"></script>', "is loaded from elsewhere"),
        ("index.html", '<link rel="stylesheet" href="//fonts.example.org/x.css">', "is loaded from elsewhere"),
        ("index.html", '<img src="gone.png">', "the link gone.png leads nowhere"),
    ],
)
def test_the_checker_of_the_site_finds_broken_links_and_what_a_network_would_have_to_bring(
    file, text, complaint, root, tmp_path, monkeypatch, capsys
):
    checker = tool(root, "check_site", monkeypatch)
    for name, content in {**SITE, file: text}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert checker.main([str(tmp_path)]) == (complaint is not None)
    out = capsys.readouterr().out
    assert out == (
        f"{file}: {out.partition(': ')[2]}" if complaint else "2 pages, 3 links within them, 1 to other sites\n"
    )
    assert complaint is None or complaint in out


def test_an_empty_site_is_a_failure(root, tmp_path, monkeypatch):
    assert tool(root, "check_site", monkeypatch).main([str(tmp_path)]) == 1


def test_parameters_of_a_docstring_become_a_list(root, monkeypatch):
    pytest.importorskip("griffe", reason="mkdocstrings is not installed (the extra docs)")
    from griffe import Docstring, Function

    text = "Do it.\n\na, b: two of them,\n    in two lines.\nc: one.\n\nRaises: nothing.\n"
    function = Function("f", docstring=Docstring(text))
    tool(root, "site_docstrings", monkeypatch).as_list(function, {"a", "b", "c"})
    assert function.docstring.value == (
        "Do it.\n\n- **a, b**: two of them,\n    in two lines.\n- **c**: one.\n\nRaises: nothing."
    )


def test_the_page_of_python_has_every_public_name(root):
    page = (root / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^::: pyprof\.(\w+)$", page, re.MULTILINE))
    assert named == set(pyprof.__all__) - {"__version__"}


def test_the_page_of_stability_has_the_versions_of_the_forms(root):
    page = (root / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
    assert f"`pyprof.schema_version` in the file's metadata: {SCHEMA_VERSION} |" in page
    assert f"`version` in `meta.json`: {CONTAINER_VERSION} |" in page
    assert f'`"v"` in the marker: {MARKER_VERSION} |' in page


def test_the_bill_of_materials_has_the_versions_of_the_vendored_parts(root, monkeypatch):
    vendor = (root / "prof" / "report" / "templates" / "vendor" / "README.md").read_text(encoding="utf-8")
    notice = (root / "NOTICE").read_text(encoding="utf-8")
    for name, version, _ in tool(root, "check_package", monkeypatch).BUNDLED:
        assert re.search(rf"(?i)\b{name} {re.escape(version)}\b", vendor), name
        assert re.search(rf"(?i)\b{name} {re.escape(version)}\b", notice), name


def test_pictures_are_small_and_all_of_them_are_shown(root):
    pages = "".join(path.read_text(encoding="utf-8") for path in [root / "README.md", *(root / "docs").rglob("*.md")])
    for picture in (root / "docs" / "images").glob("*.png"):
        assert picture.stat().st_size <= 150_000, picture.name
        assert f"images/{picture.name})" in pages, picture.name
