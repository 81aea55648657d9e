"""The report in a real browser: Chromium, driven by Playwright, with the network cut off.

They are skipped where there is no Chromium (Debian: ``apt-get install chromium``) or no Playwright (``pip install
'.[browser]'``). ``CHROMIUM`` names another binary.
"""

import os
import re
import shutil

import pytest

from tests.reports import HOSTILE, KINDS, certificate_of, decision_page, forge, page_of

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (360, 768, 1280)
LEGIBLE = 4.5  # the contrast that WCAG asks for

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install '.[browser]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || ["SCRIPT", "TITLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    const [high, low] = [luminance(channels(colour)), luminance(behind(element))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), element.tagName, element.textContent.slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a report; whatever the browser says or asks for meanwhile must be nothing."""
    context = chromium.new_context(offline=True, viewport={"width": 1280, "height": 900})
    said = []

    def open_page(content):
        path = tmp_path / "report.html"
        path.write_text(content, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    context.close()
    assert said == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_quiet_drawn_and_two_pages_on_paper(opened, kind):
    page = opened(page_of(kind))
    charts = page.locator("img.chart")
    for i in range(charts.count()):
        assert charts.nth(i).evaluate("image => image.complete && image.naturalWidth") > 300
    for paper in ("A4", "Letter"):
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format=paper))) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["black box", "hostile names", "log"])
def test_nothing_is_cut_off_at_any_width_and_all_text_is_legible(opened, kind, scheme):
    page = opened(page_of(kind))
    page.emulate_media(color_scheme=scheme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 50
    assert [found for found in contrasts if not found[0] >= LEGIBLE] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_an_appraisal_fits_and_is_legible(opened, scheme):
    page = opened(decision_page())
    page.emulate_media(color_scheme=scheme)
    for width in (*WIDTHS, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [found for found in page.evaluate(CONTRASTS) if not found[0] >= LEGIBLE] == []
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 3


def test_search_filters_the_lines_of_the_policy(opened):
    page = opened(page_of("gap certificate"))
    lines = page.locator("#lines tbody tr")
    every = lines.count()
    page.get_by_label("Search by step, state or action").fill("S1  safe")
    shown = [line.inner_text() for line in lines.all() if line.is_visible()]
    assert 0 < len(shown) < every
    assert all("s1" in text and "safe" in text for text in shown)
    assert page.locator("#found").inner_text() == f"{len(shown)} of {every} lines"
    page.locator("#search").fill("")
    assert page.locator("#found").inner_text() == f"{every} of {every} lines"


def test_hostile_names_do_nothing_but_stand_there(opened):
    page = opened(page_of("hostile names"))
    assert page.locator("#lines").get_by_text(HOSTILE[0]).first.is_visible()
    assert page.locator("script").count() == 1
    assert page.locator("main img:not(.chart)").count() == 0


def test_a_false_claim_is_red_before_anything_else(opened, tmp_path):
    from entropic_bpi.show.report._page import inputs_of
    from entropic_bpi.show.report._page import page_of as page_from

    path = forge(certificate_of("budget spent"), tmp_path / "forged.json", lower=1.9)
    page = opened(page_from(inputs_of(path)))
    verdict = page.get_by_role("alert")
    assert verdict.inner_text() == "NOT VERIFIED: do not rely on this certificate."
    red, green, blue = map(int, re.findall(r"\d+", verdict.evaluate("element => getComputedStyle(element).color"))[:3])
    assert red > 3 * max(green, blue)
    assert verdict.bounding_box()["y"] < 100
    assert page.evaluate("document.querySelector('header').contains(document.querySelector('[role=alert]'))")


def test_everything_that_can_be_used_is_reached_by_tab(opened):
    page = opened(page_of("black box"))
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"skip", "step", "search"} <= reached
