"""Every kind of report in a real browser, narrow and wide, dark and light: it fits and is accessible."""

from __future__ import annotations

import re

import pytest

from cloudgpu.views.report.html import to_html
from tests.cli.conftest import chromium  # noqa: F401  (a fixture)
from tests.views import pages
from tests.views.report.test_html_browser import JUDGED, SIZES, axe, browser  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.soak, pytest.mark.browser]

DOCUMENTS = (pages.empty, pages.one_hour, pages.three_months, pages.hostile, pages.huge)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.__name__)
def test_a_report_fits_and_is_accessible(browser, axe, document, tmp_path):  # noqa: F811
    page = tmp_path / "report.html"
    page.write_text(to_html(document()))
    for width, scheme in SIZES[:: 3 if document is pages.huge else 1]:  # a long list takes half a minute to judge
        assert browser.show(page, width=width, scheme=scheme) == ([], [page.as_uri()])
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.run(f"{axe}; 0")
        assert browser.run(JUDGED) == [], (width, scheme)
    pages_printed = int(re.search(rb"/Count (\d+)", browser.printed())[1])
    assert 1 <= pages_printed <= 25
