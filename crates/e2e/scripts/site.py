"""The site of the documentation in a browser: site.py DIRECTORY. Then the same checks on pages that are broken on
purpose: each has to be found."""

import pathlib
import shutil
import sys
import tempfile

from browser import Browser

PAGES = ["index.html", "docs/tuning.html", "docs/warm.html", "docs/results/bench.html"]
PHONE = (360, 740)
LINKS = "#mdbook-sidebar a[href]"

# Texts of which the contrast with what is behind them is below 4.5. Examples have the colours of their language.
CONTRAST = """
const light = (c) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const clear = (text) => numbers(text).length === 4 && numbers(text)[3] === 0;
const behind = (e) => {
  for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!clear(c)) return c; }
  return 'rgb(255, 255, 255)';
};
const bad = []; let seen = 0;
for (const e of document.querySelectorAll('main :is(h1,h2,h3,p,li,td,th,a,code)')) {
  if (!e.textContent.trim() || e.closest('pre') || !e.getClientRects().length) continue;
  const [front, back] = [light(numbers(getComputedStyle(e).color)), light(numbers(behind(e)))];
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  seen++;
  if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 40), ratio, getComputedStyle(e).color, behind(e)]);
}
return [seen, bad];
"""

# What reaches over the right edge, but for what can be scrolled by itself.
WIDE = """
const scrolls = (e) => { for (; e.tagName !== 'MAIN'; e = e.parentElement)
  if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return true; };
return [...document.querySelectorAll('main *')].filter((e) => e.getClientRects().length && !scrolls(e)
  && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80));
"""


def opens(browser, site, page):
    browser.requests()
    browser.log()
    browser.open((site / page).as_uri())
    assert browser.run("return document.querySelector('main h1').textContent.trim()"), f"{page} has no heading"
    # The browser's own pages are of chrome://.
    outside = [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:", "chrome:"))]
    assert outside == [], f"{page} asks for {outside}"
    log = browser.log()
    assert log == [], f"{page} writes to the console: {log}"
    blind = "return [...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src)"
    assert browser.run(blind) == [], f"{page} lacks pictures: {browser.run(blind)}"


def side_bar_leads_to_pages(browser, site, page):
    links = browser.run("return [...document.querySelectorAll(arguments[0])].map((a) => a.href)", LINKS)
    assert len(links) > 30, f"{page} has {len(links)} links in its side bar"
    for link in links:
        path = pathlib.Path(link.removeprefix("file://").split("#")[0])
        assert path.is_file(), f"{page}: the side bar leads to {link}, which is not there"
    active = browser.run("return document.querySelectorAll(arguments[0] + '.active').length", LINKS)
    assert active >= 1, f"{page} does not say in the side bar where it is"


def side_bar_is_clicked(browser, site, page):
    for name in ["Packages", "Decisions"]:
        find = "return [...document.querySelectorAll(arguments[0])].find((a) => a.textContent.trim() === arguments[1])"
        link = browser.run(find, LINKS, name)
        assert link, f"{page}: the side bar has no {name}"
        browser.ask("POST", f"/element/{next(iter(link.values()))}/click")
        there = browser.run("return [location.pathname, document.querySelector('main h1').textContent.trim()]")
        assert there[0].endswith(f"/docs/{name.lower()}.html") and there[1].startswith(name), (name, there)
    browser.open((site / page).as_uri())


def fits_a_phone(browser, site, page):
    browser.phone(*PHONE)
    try:
        browser.open((site / page).as_uri())
        width = browser.run("return [innerWidth, document.documentElement.scrollWidth]")
        assert width[1] <= PHONE[0], f"{page} is {width} wide on a phone of {PHONE[0]}"
        wide = browser.run(WIDE)
        assert wide == [], f"{page} has text beside a phone's screen: {wide[:5]}"
        size = browser.run("return parseFloat(getComputedStyle(document.querySelector('main p')).fontSize)")
        assert size >= 14, f"{page} has letters of {size} on a phone"
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")


def both_themes_can_be_read(browser, site, page):
    backs = []
    try:
        for is_dark in [False, True]:
            browser.dark(is_dark)
            browser.open((site / page).as_uri())
            seen, bad = browser.run(CONTRAST)
            assert seen > 20 and bad == [], f"{page}, {'dark' if is_dark else 'light'}: {seen} seen, of these {bad[:5]}"
            backs.append(browser.run("return getComputedStyle(document.documentElement).backgroundColor"))
    finally:
        browser.dark(False)
    assert backs[0] != backs[1], f"{page} is {backs[0]} in both themes"


CHECKS = [opens, side_bar_leads_to_pages, side_bar_is_clicked, fits_a_phone, both_themes_can_be_read]


def add(text):
    """Puts `text` at the end of what a page says."""

    def change(page):
        page.write_text(page.read_text().replace("</main>", text + "</main>", 1))

    return change


def lead(link, to):
    """Has a link of the side bar lead to another page."""

    def change(page):
        for toc in page.parents[1].glob("toc-*.js"):
            toc.write_text(toc.read_text().replace(f"docs/{link}.html", f"docs/{to}.html", 1))

    return change


DIM = "<style>html.{} main p {{ color: {} !important }}</style>"
BREAKS = [
    (opens, "console", add("<script>undefined_function()</script>")),
    (opens, "asks for", add('<img src="http://faultless.invalid/x.png" hidden loading="eager">')),
    (opens, "pictures", add('<img src="data:image/png;base64,AAAA">')),
    (side_bar_leads_to_pages, "nowhere.html", lead("locking", "nowhere")),
    (side_bar_is_clicked, "guide.html", lead("packages", "guide")),
    (fits_a_phone, "beside a phone's screen", add('<p style="width: 900px">wide</p>')),
    (fits_a_phone, "letters", add("<style>main p { font-size: 9px !important }</style>")),
    (both_themes_can_be_read, "light", add(DIM.format("light", "#ddd"))),
    (both_themes_can_be_read, "dark", add(DIM.format("navy", "#222"))),
]


def finds_what_is_broken(browser, site, page):
    """Each check on a copy in which one thing is broken."""
    for check, said, change in BREAKS:
        with tempfile.TemporaryDirectory() as copy:
            copy = pathlib.Path(copy) / "html"
            shutil.copytree(site, copy, ignore=lambda folder, names: {"api"} if folder == str(site) else set())
            (copy / "api").symlink_to(site / "api")
            change(copy / page)
            browser.open((copy / page).as_uri())
            found = None
            try:
                check(browser, copy, page)
            except AssertionError as error:
                found = str(error)
            assert found and said in found, f"{check.__name__} does not find that it is broken ({said}): {found}"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile, logs=("browser", "performance"))
        try:
            for page in PAGES:
                for check in CHECKS:
                    check(browser, site, page)
                print(page)
            finds_what_is_broken(browser, site, "docs/tuning.html")
            print(f"{len(BREAKS)} broken copies were found")
        finally:
            browser.close()


main()
