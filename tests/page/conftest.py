"""One browser for all tests, and pages of traces in it."""

import itertools

import browser
import pytest


def pytest_addoption(parser):
    parser.addoption("--tool", help="path of the command-line tool, whose pages are tested too")


@pytest.fixture(scope="session")
def driver():
    with browser.chromium() as one:
        yield one


@pytest.fixture
def open_page(driver, tmp_path):
    """open_page(trace, ...) shows the page of a trace, or the page without one; `change` makes another page of its text."""
    numbers = itertools.count()

    def show(trace, change=lambda text: text, **more):
        file = tmp_path / f"trace_{next(numbers)}.html"
        file.write_text(change(browser.page_of(trace)), encoding="utf-8")
        return browser.Page(driver, file, **more)

    return show
