"""The report's page in a real browser: as wide as a telephone and a desk, dark and light, for ears, and on paper."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from cloudgpu.views.report.html import to_html
from tests.browser import Chrome
from tests.cli.conftest import chromium  # noqa: F401  (a fixture)
from tests.views import pages

pytestmark = pytest.mark.browser

SIZES = [(360, "light"), (360, "dark"), (1440, "light"), (1440, "dark")]
JUDGED = (
    "axe.run({resultTypes: ['violations']}).then(found => found.violations.map(one => [one.id, one.nodes[0].html]))"
)
OPENED = "document.querySelectorAll('details').forEach(one => one.open = true)"


@pytest.fixture(scope="module")
def browser(chromium, tmp_path_factory):  # noqa: F811
    started = Chrome(chromium, tmp_path_factory.mktemp("chromium"))
    yield started
    started.end()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("report")
    for document in (pages.three_months, pages.hostile):
        (made / f"{document.__name__}.html").write_text(to_html(document()))
    return lambda name: made / f"{name}.html"


@pytest.fixture(scope="module")
def axe():
    return files("axe_core_python").joinpath("axe.min.js").read_text()


@pytest.mark.soak
@pytest.mark.parametrize(("width", "scheme"), SIZES[::3])  # the others: tests/soak/test_report_page.py
def test_the_page_fits_and_is_accessible(browser, file, axe, width, scheme):
    complaints, fetched = browser.show(file("three_months"), width=width, scheme=scheme)
    assert (complaints, fetched) == ([], [file("three_months").as_uri()])
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "the page itself never scrolls sideways"
    dark = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert dark == (scheme == "dark")
    browser.run(OPENED)
    browser.run(f"{axe}; 0")
    assert browser.run(JUDGED) == []


def test_what_scrolls_is_reached_by_keyboard_and_has_a_name(browser, file):
    browser.show(file("three_months"), width=360)
    browser.run(OPENED)
    wide = "[...document.querySelectorAll('*')].filter(one => one.scrollWidth > one.clientWidth + 1 && "
    found = browser.run(f"{wide} getComputedStyle(one).overflowX == 'auto').map(one => [one.tabIndex, one.ariaLabel])")
    assert len(found) > 5
    assert all(index == 0 and label for index, label in found)


@pytest.mark.soak
@pytest.mark.parametrize(("width", "scheme"), SIZES[::3])
def test_harmful_names_do_nothing_and_are_shown(browser, file, width, scheme):
    complaints, fetched = browser.show(file("hostile"), width=width, scheme=scheme)
    assert (complaints, fetched) == ([], [file("hostile").as_uri()])
    assert browser.run("document.querySelectorAll('script, img, iframe').length") == 0
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    shown = browser.run("document.body.innerText")
    for name in pages.HOSTILE:
        assert name.isprintable() is (name in shown)


@pytest.mark.soak
def test_the_page_prints_in_light_with_every_machine_and_no_chart_is_cut(browser, file):
    browser.show(file("three_months"), width=700, scheme="dark", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("[...document.querySelectorAll('figure')].map(one => getComputedStyle(one).breakInside)") == [
        "avoid", "avoid", "avoid",
    ]  # fmt: skip
    browser.run("document.querySelectorAll('details:not(.same)').forEach(one => one.open = false)")
    assert browser.run("document.querySelector('.dense td').checkVisibility({contentVisibilityAuto: true})")
    browser.show(file("three_months"), width=1440, scheme="dark")
    printed = browser.printed()
    assert printed.startswith(b"%PDF-")
    assert 3 <= int(re.search(rb"/Count (\d+)", printed)[1]) <= 10


def test_a_page_that_would_run_a_script_is_kept_from_it_by_its_policy(browser, file, tmp_path):
    """Should a text ever slip through: the browser is told to run and fetch nothing."""
    page = tmp_path / "slipped.html"
    html = to_html(pages.empty())
    page.write_text(html.replace("</main>", "<script>document.title = 'ran'</script><img src='x.png'></main>"))
    complaints, _ = browser.show(page, width=1440)
    assert browser.run("document.title").startswith("Cloud GPU report")
    assert len([one for one in complaints if "Content Security Policy" in str(one)]) >= 2
