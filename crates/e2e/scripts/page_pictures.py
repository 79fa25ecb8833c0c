"""Pictures of the page of `faultless report --html`: page_pictures.py PAGE DIRECTORY"""

import base64
import pathlib
import sys
import tempfile
import time

from browser import ELEMENT, Browser

# Of the page of a desktop.
WIDTH, HEIGHT = 1000, 1500
PHONE = 360, 740

# Where a section is.
PLACE = """
const box = document.getElementById(arguments[0]).getBoundingClientRect();
return { x: 0, y: box.y + scrollY, width: innerWidth, height: box.height };
"""
# Of the functions that others call, the one with the most below it.
BRANCHED = """
const frames = [...document.querySelectorAll('#flame g.frame')].map((g) => [g, d3.select(g).datum()]);
return d3.greatest(frames.filter(([, d]) => d.depth > 1), ([, d]) => d.descendants().length)[0];
"""


def picture(browser, path, clip):
    # Bars of the flame graph move to their places.
    time.sleep(1)
    clip = {"x": 0, "y": 0, "scale": 1, **clip}
    shot = browser.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    path.write_bytes(base64.b64decode(shot["data"]))


def wait(browser, script):
    for _ in range(200):
        if browser.run(script):
            return
    raise AssertionError(script)


def main():
    page, to = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile, WIDTH, HEIGHT)
        try:
            size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            browser.command("Emulation.setDeviceMetricsOverride", **size)
            browser.dark(False)
            browser.open(page.as_uri())
            wait(browser, "return document.documentElement.dataset.ready === 'yes'")
            picture(browser, to / "report.png", {"width": WIDTH, "height": HEIGHT})
            browser.dark(True)
            picture(browser, to / "report-dark.png", {**browser.run(PLACE, "time"), "height": 900})
            browser.dark(False)
            frame = browser.run(BRANCHED)
            browser.ask("POST", f"/element/{frame[ELEMENT]}/click")
            wait(browser, "return !document.getElementById('reset').disabled")
            picture(browser, to / "report-zoomed.png", browser.run(PLACE, "stacks"))
            # A phone has a denser screen; a picture of as many points is enough here.
            browser.command("Emulation.setDeviceMetricsOverride", width=PHONE[0], height=PHONE[1], deviceScaleFactor=1, mobile=True)
            browser.open(page.as_uri())
            wait(browser, "return document.documentElement.scrollWidth <= 360")
            picture(browser, to / "report-phone.png", {**browser.run(PLACE, "time"), "height": 1000})
            assert browser.log() == [], browser.log()
        finally:
            browser.close()


main()
