"""The checker of the docs finds what it is there for. (That the pages are right is `make docs`.)"""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def checker(root):
    spec = importlib.util.spec_from_file_location("check_docs", root / "tools" / "check_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# The other page\n\n## Rows, and why\n")
    return tmp_path / "docs" / "page.md"


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("[a](other.md) [b](other.md#rows-and-why) [c](https://example.org/x) [d](#here)\n# Here\n", []),
        ("[a](missing.md)", ["the link missing.md leads nowhere"]),
        ("[a](other.md#columns)", ["the link other.md#columns leads to no heading"]),
        ("`docs/other.md` and `docs/`", []),
        (
            "`docs/missing.md` and `prof/`",
            ["docs/missing.md is not in the checkout", "prof/ is not in the checkout"],
        ),
        ("`pip install x/y` and `build/demo/`", []),
        ("```sh\n[a](missing.md) `docs/missing.md`\n```\n", []),
    ],
)
def test_links_and_paths(checker, page, text, complaints):
    page.write_text(text)
    root = page.parents[1]
    assert list(checker.check(page, root)) == [f"{Path('docs/page.md')}: {line}" for line in complaints]


def test_the_changelog_may_name_files_that_are_gone(checker, page):
    changelog = page.with_name("CHANGELOG.md")
    changelog.write_text("`docs/missing.md` [a](missing.md)")
    assert list(checker.check(changelog, page.parents[1])) == ["docs/CHANGELOG.md: the link missing.md leads nowhere"]


def test_a_changed_help_is_found_and_written(checker, page):
    page.write_text("before\n<!-- help: pyprof -->\n```text\nusage: old\n```\n<!-- /help -->\nafter\n")
    root = page.parents[1]
    assert [line.split(": ", 1)[1] for line in checker.check(page, root)] == [
        "the help of pyprof has changed: run tools/check_docs.py --write"
    ]
    checker.paste(page)
    assert "usage: pyprof [-h] [--version] COMMAND" in page.read_text()
    assert page.read_text().endswith("```\n<!-- /help -->\nafter\n")
    assert list(checker.check(page, root)) == []


@pytest.mark.parametrize(("end", "shown"), [("", "usage: pyprof [-h]"), ("; up to: commands:", "usage: pyprof [-h]")])
def test_a_changed_output_is_found_and_written(checker, page, end, shown):
    page.write_text(f"<!-- output: pyprof -h{end} -->\n```text\nold\n```\n<!-- /output -->\nafter\n")
    root = page.parents[1]
    assert [line.split(": ", 1)[1] for line in checker.check(page, root)] == [
        "the output of pyprof -h has changed: run tools/check_docs.py --write"
    ]
    checker.paste(page)
    text = page.read_text()
    assert shown in text
    assert ("commands:" in text.partition("-->")[2]) == (end == "")
    assert text.endswith("```\n<!-- /output -->\nafter\n")
    assert list(checker.check(page, root)) == []


def test_an_output_begins_and_ends_at_the_named_lines(checker, page):
    """Of 'usage: ...', an empty line, 'commands:' and one line per command: the line of run, before that of ncu."""
    page.write_text("<!-- output: pyprof -h; from:   run; up to:   ncu -->\n<!-- /output -->\n")
    checker.paste(page)
    text = page.read_text().partition("-->\n```text\n")[2]
    assert text.startswith("  run") and text.count("\n") == 3  # the line, the fence, the mark
    assert list(checker.check(page, page.parents[1])) == []


def test_a_session_shows_the_command_as_typed_and_dots_for_what_is_left_out(checker, page, root):
    command = "pyprof diff -q -w 100 tests/golden/h200_diff_padded.json.gz tests/golden/h200_diff_eager.json.gz"
    gate = '--fail-if "step > 3%"'
    page.write_text(f"<!-- session: {command} {gate}; exit code: 3; from: failed -->\n<!-- /session -->\n")
    checker.paste(page)
    assert page.read_text().splitlines()[1:-1] == [
        "```console",
        f"$ {command.replace(' -q -w 100', '')} {gate}",
        "...",
        "failed: step > 3%: 10.08 -> 23.14 ms, +13.06 ms (+129.5%), noise ±0.05 ms",  # as docs/how-to/diff.md
        "```",
    ]
    assert list(checker.check(page, page.parents[1])) == []


def test_a_command_with_another_exit_code_is_an_error(checker, page):
    page.write_text("<!-- output: pyprof prof missing.json -->\n<!-- /output -->\n")
    with pytest.raises(SystemExit, match=r"pyprof prof missing.json: exit code 1"):
        checker.paste(page)


def test_what_the_front_pages_show_is_printed(checker, root):
    """Where a model or a reader changes the figures: tools/check_docs.py --write, and read the diff."""
    for page in (root / "README.md", root / "docs" / "tutorial.md"):
        assert "<!-- output: pyprof prof" in page.read_text(encoding="utf-8")
        assert list(checker.check(page, root)) == []


def test_the_help_of_python_3_13_and_of_older_ones_are_the_same_words(checker):
    old = "  -o FILE, --output FILE\n                        write here\n"
    assert checker.words(old) == checker.words("  -o, --output FILE     write here\n")
