"""The page of `faultless report --html` in a browser:

page.py PAGE [DIRECTORY FOR A PICTURE]   opens, clicks and reads it
page.py PAGE --time                      opens it three times, and says how long that took
"""

import pathlib
import sys
import tempfile
import time

from browser import Browser

TAB, ENTER, ESCAPE, DOWN = "\ue004", "\ue007", "\ue00c", "\ue015"

# The contrast of each text with what is behind it: those below 4.5, with their colours.
CONTRAST = """
const light = (c) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const clear = (text) => text === 'transparent' || (numbers(text).length === 4 && numbers(text)[3] === 0);
const behind = (e) => {
  const frame = e.closest('#flame g.frame');
  if (frame) return getComputedStyle(frame.querySelector('rect')).fill;
  for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!clear(c)) return c; }
  return 'rgb(255, 255, 255)';
};
const bad = []; let seen = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || e.closest('script,style,noscript,title,.skip,caption')) continue;
  if (!e.getClientRects().length || e.closest('button:disabled')) continue;
  const style = getComputedStyle(e);
  const front = light(numbers(e.closest('svg') && !e.closest('foreignObject') ? style.fill : style.color));
  const back = light(numbers(behind(e)));
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  seen++;
  let opacity = 1;
  for (let up = e; up; up = up.parentElement) opacity *= getComputedStyle(up).opacity;
  if (ratio < 4.5 || opacity < 1) bad.push([walker.currentNode.data.slice(0, 40), ratio, style.color, behind(e)]);
}
return [seen, bad];
"""

FOCUS = """
const e = document.activeElement;
return e.id || e.getAttribute('aria-label') || e.textContent.trim();
"""

FRAME = "return [...document.querySelectorAll('#flame g.frame')].find((g) => g.getAttribute('name') === arguments[0])"


def column(browser, table, place):
    script = "return [...document.querySelectorAll(arguments[0])].map((cell) => cell.textContent)"
    return browser.run(script, f"#{table}-table tbody tr td:nth-child({place})")


def width(browser, name):
    return browser.run(FRAME + ".querySelector('rect').getBoundingClientRect().width", name)


def number(text):
    return int("".join(c for c in text if c.isdigit()))


def opens_without_network(browser, page):
    browser.open(page.as_uri())
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    assert browser.log() == [], browser.log()
    assert browser.run("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert "phases" in browser.run("return document.title")


def tables_are_sorted(browser):
    faults = [number(text) for text in column(browser, "mappings", 2)]
    assert len(faults) > 3 and faults == sorted(faults, reverse=True), faults
    head = "#mappings-table th:nth-child({})"
    browser.click(head.format(1) + " button")
    names = column(browser, "mappings", 1)
    assert names == sorted(names), names
    sort = "return document.querySelector(arguments[0]).getAttribute('aria-sort')"
    assert browser.run(sort, head.format(1)) == "ascending"
    assert browser.run(sort, head.format(2)) == "none"
    browser.click(head.format(1) + " button")
    assert browser.run(sort, head.format(1)) == "descending"
    assert column(browser, "mappings", 1) == names[::-1]
    # By keys, too.
    browser.run(f"document.querySelector('{head.format(2)} button').focus()")
    browser.keys([ENTER])
    assert [number(text) for text in column(browser, "mappings", 2)] == faults


def search_finds_functions(browser):
    before = len(column(browser, "mappings", 1))
    browser.type("#search", "fill_pages")
    assert column(browser, "functions", 1) == ["fill_pages"]
    assert column(browser, "mappings", 1) == []
    said = browser.run("return document.getElementById('found').textContent")
    part = float(said.split("with ")[1].split(" %")[0])
    assert part > 80, said
    fill = FRAME + ".querySelector('rect').getAttribute('fill')"
    marked = browser.run(fill, "fill_pages")
    assert marked != browser.run(fill, "fill_large"), marked
    browser.run("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    assert len(column(browser, "mappings", 1)) == before
    assert browser.run(fill, "fill_pages") != marked


def flame_graph_zooms(browser):
    whole = width(browser, "all")
    before = width(browser, "fill_large")
    assert before < whole - 5
    browser.run("document.getElementById('stacks').scrollIntoView()")
    disabled = "return document.getElementById('reset').disabled"
    assert browser.run(disabled)
    frame = browser.run(FRAME, "fill_large")
    browser.ask("POST", f"/element/{next(iter(frame.values()))}/click")
    wait(browser, f"return Math.abs(({FRAME.removeprefix('return ')}).querySelector('rect').getBoundingClientRect().width - {whole}) < 3", "fill_large")
    assert "Zoomed to fill_large" in browser.run("return document.getElementById('frame').textContent")
    assert not browser.run(disabled)
    browser.click("#reset")
    wait(browser, f"return Math.abs(({FRAME.removeprefix('return ')}).querySelector('rect').getBoundingClientRect().width - {before}) < 3", "fill_large")
    assert browser.run(disabled)
    # By keys: from the root to the function with the most faults, zoomed, and back.
    browser.run("document.querySelector('#flame g.frame[tabindex=\"0\"]').focus()")
    assert browser.run(FOCUS).startswith("all: "), browser.run(FOCUS)
    browser.keys([DOWN, DOWN])
    focused = browser.run(FOCUS)
    assert not focused.startswith("all: ") and "faults" in focused, focused
    browser.keys([ENTER])
    wait(browser, "return !document.getElementById('reset').disabled")
    browser.keys([ESCAPE])
    wait(browser, "return document.getElementById('reset').disabled")
    assert browser.run("return document.querySelectorAll('#flame g.frame[tabindex=\"0\"]').length") == 1


def wait(browser, script, *args):
    for _ in range(200):
        if browser.run(script, *args):
            return
    raise AssertionError(script)


def treemap_leads_to_the_table(browser):
    largest = "const all = [...document.querySelectorAll('#map button')]; return all.sort((a, b) => b.offsetWidth * b.offsetHeight - a.offsetWidth * a.offsetHeight)[0]"
    label = browser.run(largest + ".getAttribute('aria-label')")
    element = browser.run(largest)
    browser.ask("POST", f"/element/{next(iter(element.values()))}/click")
    chosen = browser.run("return document.activeElement.cells?.[0].textContent")
    assert chosen and label.startswith(chosen + ": "), (label, chosen)
    top = [number(text) for text in column(browser, "mappings", 2)]
    assert number(label.split(": ")[1].split(" faults")[0]) == max(top)


def keys_reach_everything(browser):
    browser.run("document.activeElement.blur(); scrollTo(0, 0)")
    reached = []
    for _ in range(120):
        browser.keys([TAB])
        reached.append(browser.run(FOCUS))
    for wanted in ["search", "theme"]:
        assert wanted in reached, reached
    for part in ["all: ", "anonymous", "Functions, table"]:
        assert any(text.startswith(part) for text in reached), (part, reached)
    assert "Faults" in reached, reached


def names_are_there_for_screen_readers(browser):
    browser.command("Accessibility.enable")
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    nodes = [node for node in nodes if not node.get("ignored")]
    text = lambda node, key: node.get(key, {}).get("value", "")
    roles = {}
    for node in nodes:
        roles.setdefault(text(node, "role"), []).append(text(node, "name"))
    for role in ["button", "image", "region", "table", "searchbox", "link", "columnheader"]:
        assert roles.get(role), (role, sorted(roles))
        assert all(name.strip() for name in roles[role]), (role, roles[role])
    assert len(roles["main"]) == 1
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3')].map((h) => +h.tagName[1])")
    assert levels.count(1) == 1 and set(levels) == {1, 2}, levels
    assert len(set(browser.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)"))) == browser.run("return document.querySelectorAll('[id]').length")


def texts_have_contrast(browser):
    # With callers that the zoom has passed, and functions that the search has found.
    browser.run("document.querySelector('#flame g.frame[tabindex=\"0\"]').focus()")
    browser.keys([DOWN, DOWN, ENTER])
    wait(browser, "return document.querySelectorAll('#flame g.frame.fade').length > 0")
    browser.type("#search", "fill")
    for is_dark in [False, True]:
        browser.dark(is_dark)
        seen, bad = browser.run(CONTRAST)
        assert seen > 60 and not bad, (is_dark, seen, bad[:5])
    back = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.run(back)
    browser.run("scrollTo(0, 0)")
    browser.click("#theme")
    light = browser.run(back)
    assert light != dark
    assert browser.run(CONTRAST)[1] == []
    browser.click("#theme")
    assert browser.run(back) == dark
    browser.click("#theme")
    browser.dark(False)
    browser.run("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    browser.click("#reset")


def fits_a_phone(browser):
    browser.phone(360, 740)
    wait(browser, "return document.querySelector('#line svg').getBoundingClientRect().right <= innerWidth")
    wait(browser, "return document.documentElement.scrollWidth <= 360")
    wide = "return [...document.querySelectorAll('h1,h2,p,dd,button,input,svg,#map button')].filter((e) => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('#flame')).map((e) => e.outerHTML.slice(0, 80))"
    wait(browser, wide + ".length === 0")
    assert float(browser.run("return getComputedStyle(document.body).fontSize").removesuffix("px")) >= 16
    small = "return [...document.querySelectorAll('#tools button,th button,input')].filter((e) => e.getBoundingClientRect().height < 40).length"
    assert browser.run(small) == 0


def says_its_time(page):
    for _ in range(3):
        with tempfile.TemporaryDirectory() as profile:
            browser = Browser(profile)
            try:
                start = time.monotonic()
                browser.open(page.as_uri())
                opened = time.monotonic() - start
                assert browser.run("return document.documentElement.dataset.ready") == "yes"
                loaded = browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
                frames = browser.run("return document.querySelectorAll('#flame g.frame').length")
            finally:
                browser.close()
        print(f"loaded and drawn in {loaded:.2f} s, seen from outside {opened:.2f} s; {frames} bars in the flame graph")


def main():
    page = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["--time"]:
        return says_its_time(page)
    pictures = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        try:
            opens_without_network(browser, page)
            if pictures:
                browser.picture(pictures / "page.png")
            checks = [tables_are_sorted, search_finds_functions, flame_graph_zooms, treemap_leads_to_the_table]
            checks += [keys_reach_everything, names_are_there_for_screen_readers, texts_have_contrast, fits_a_phone]
            for check in checks:
                check(browser)
                print(check.__name__)
            assert browser.log() == [], browser.log()
        finally:
            browser.close()


main()
