"""The page in a real browser: switch, folds, charts, downloads, machines, accessibility."""

import functools
import http.server
import threading
from contextlib import contextmanager

import pytest
from conftest import ROOT
from records_factory import Results

pytestmark = pytest.mark.page
PHONE = {"viewport": {"width": 375, "height": 800}, "device_scale_factor": 2}


@pytest.mark.parametrize("language", ["ja", "en"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_complaint_no_request_and_nothing_serious_from_axe(full, visit, language, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    _, page = full
    seen = visit(page / language / "index.html", color_scheme=scheme)
    for fold in seen.page.locator("details").all():
        fold.evaluate("fold => { fold.open = true }")
    found = axe.Axe().run(seen.page)
    bad = [v for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
    assert not bad, found.generate_report()
    assert seen.complaints == []
    assert len(seen.requests) == 1, seen.requests


@pytest.mark.parametrize("language", ["ja", "en"])
def test_a_phone_scrolls_only_downwards(full, visit, language):
    _, page = full
    seen = visit(page / language / "index.html", **PHONE)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 375
    table = seen.page.locator("#mixed_precision table.numbers").first
    assert table.bounding_box()["width"] <= 375


def test_the_language_switch_keeps_the_place(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html", reduced_motion="reduce")
    seen.page.evaluate("document.getElementById('parallelism').scrollIntoView()")
    seen.page.evaluate("document.querySelector('.languages a[lang=ja]').click()")
    seen.page.wait_for_url("**/ja/index.html#parallelism")
    assert seen.page.evaluate("document.documentElement.lang") == "ja"
    top = seen.page.locator("#parallelism").bounding_box()["y"]
    assert abs(top) < 60


def test_the_start_page_picks_the_browser_language(full, visit):
    _, page = full
    for locale, language in (("ja-JP", "ja"), ("en-GB", "en"), ("fr-FR", "ja")):
        seen = visit(page / "index.html", locale=locale)
        seen.page.wait_for_url(f"**/{language}/index.html")


def test_hover_and_focus_show_the_numbers(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html")
    chart = seen.page.locator("#sharding .throughput svg")
    mark, tip = chart.locator(".mark").nth(1), seen.page.locator("#tip")
    assert not tip.is_visible()
    mark.hover()
    assert tip.is_visible() and "samples/s, n = 3" in tip.text_content()
    seen.page.mouse.move(0, 0)
    assert not tip.is_visible()
    chart.locator(".mark").first.focus()
    assert "OOM" in tip.text_content()
    seen.page.keyboard.press("ArrowDown")
    assert "5.21" in tip.text_content()
    assert chart.locator(".mark[tabindex='0']").count() == 1
    seen.page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_folds_open_by_keyboard(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html")
    fold = seen.page.locator("#sharding .remarks details").first
    assert not fold.locator("pre").is_visible()
    fold.locator("summary").focus()
    seen.page.keyboard.press("Enter")
    assert fold.locator("pre").is_visible()
    assert "DefaultCPUAllocator" in fold.locator("pre").text_content()


def test_downloads_hold_the_numbers(full, visit):
    _, page = full
    with served(page) as address:
        seen = visit(page / "ja" / "index.html")
        seen.page.goto(f"{address}/ja/index.html")
        links = seen.page.locator("a[download]").all()
        assert len(links) == 10
        for link in links:
            with seen.page.expect_download() as started:
                link.evaluate("link => link.click()")
            assert started.value.path().stat().st_size > 100


@contextmanager
def served(folder):
    """The page over HTTP, as a reader gets it; from files a browser shows JSON itself."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def test_without_scripts_the_page_is_complete(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html", java_script_enabled=False)
    assert seen.page.locator("table.numbers").count() == 8
    assert seen.page.locator(".languages a").count() == 2


def test_nothing_moves_after_the_first_paint(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html")
    shift = seen.page.evaluate(
        """() => new Promise(done => {
            let total = 0;
            new PerformanceObserver(list => {
                for (const entry of list.getEntries()) total += entry.value;
            }).observe({type: "layout-shift", buffered: true});
            setTimeout(() => done(total), 300);
        })"""
    )
    assert shift == 0


def test_tables_do_not_split_in_print(full, visit):
    _, page = full
    seen = visit(page / "en" / "index.html")
    seen.page.emulate_media(media="print")
    rule = "e => getComputedStyle(e).breakInside"
    assert seen.page.locator("#sharding table").first.evaluate(rule) == "avoid"
    assert not seen.page.locator(".languages").is_visible()


def test_the_machine_switcher_shows_one_machine(tmp_path, visit):
    from trainmark import page as page_command
    from trainmark import recordset

    folders = []
    for name in ("first", "second"):
        results = Results(tmp_path / name)
        results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32")
        results.measure("mixed_precision", "fp32")
        folders.append(recordset.write(name, results.plans, results.records, tmp_path / "sets"))
    out = tmp_path / "page"
    arguments = ["--out", str(out), "--report", str(ROOT / "report"), "--draft"]
    page_command.main(["--more", *map(str, folders), *arguments])
    seen = visit(out / "en" / "index.html")
    first, second = (seen.page.locator(f"#{name}") for name in ("machine", "second-machine"))
    assert first.is_visible() and not second.is_visible()
    seen.page.locator(".machines a").nth(1).click()
    assert second.is_visible() and not first.is_visible()
    direct = visit(f"{out}/en/index.html")
    direct.page.goto((out / "en" / "index.html").as_uri() + "#second-mixed_precision")
    direct.page.wait_for_function("!document.getElementById('second-machine').hidden")
