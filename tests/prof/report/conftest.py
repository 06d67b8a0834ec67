"""The browser that the tests of the page share."""

import pytest

from tests.prof.report.browser import browser, missing


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("profile")) as found:
        found.resize(1280, 900)
        yield found
