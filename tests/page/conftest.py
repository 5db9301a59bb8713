"""A page rendered from synthetic records, once, and a real browser to look at it."""

import os
import shutil
from pathlib import Path

import pytest
from records_factory import Results
from trainmark import page, tables

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "config" / "published" / "alibaba-pai.yaml"


def render(results, out=None, *more, languages="ja,en", report=None):
    """Aggregate and render as the pipeline does; returns the folder of the page."""
    places = ["--plans", str(results.plans), "--records", str(results.records)]
    assert tables.main([*places, "--out", str(results.tables)]) == 0
    out = out or results.page
    arguments = [
        "--tables", str(results.tables), *places, "--published", str(PUBLISHED),
        "--report", str(report or ROOT / "report"), "--out", str(out),
        "--languages", languages, *more,
    ]  # fmt: skip
    assert page.main(arguments) == 0
    return out


@pytest.fixture(scope="session")
def full(tmp_path_factory):
    """All tables measured: (results, folder of the page)."""
    results = Results(tmp_path_factory.mktemp("full"))
    results.declare_all()
    results.measure_all()
    return results, render(results)


@pytest.fixture(scope="session")
def chromium_path():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        message = "no chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def browser(chromium_path):
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """An opened page, with what the browser complained about or asked the network for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(Path(path).as_uri())


@pytest.fixture
def visit(browser):
    opened = []

    def go(path, **options):
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield go
    for each in opened:
        each.context.close()
