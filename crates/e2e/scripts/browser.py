"""A browser, driven by the WebDriver protocol of chromedriver."""

import base64
import json
import subprocess
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """Chromium without a window. It loads nothing but files."""

    def __init__(self, profile, width=1200, height=900, logs=("browser",)):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = next(line.rsplit(" ", 1)[1].rstrip(".\n") for line in self.driver.stdout if "successfully on port" in line)
        self.base = f"http://127.0.0.1:{port}"
        # As root, and in containers, Chromium has no sandbox of its own.
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        args += [f"--user-data-dir={profile}", f"--window-size={width},{height}", "--force-color-profile=srgb"]
        args += ["--force-prefers-reduced-motion", "--host-resolver-rules=MAP * ~NOTFOUND"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": args}, "goog:loggingPrefs": dict.fromkeys(logs, "ALL")}
        try:
            session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.driver.kill()
            raise
        self.base += "/session/" + session["sessionId"]

    def ask(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:2000]}") from None

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value of a script's `return`."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def find(self, selector):
        return self.ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.ask("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        self.ask("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def clear(self, selector):
        self.ask("POST", f"/element/{self.find(selector)}/clear")

    def keys(self, keys):
        """Presses keys, one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def command(self, name, **parameters):
        """One of Chromium's own: sizes and settings that no user of a desktop has."""
        return self.ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def phone(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=True)

    def dark(self, is_dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def log(self):
        return self.ask("POST", "/se/log", {"type": "browser"})

    def requests(self):
        """The addresses that were asked for since the last call, also those that were not had. It takes the log `performance`."""
        events = [json.loads(entry["message"])["message"] for entry in self.ask("POST", "/se/log", {"type": "performance"})]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def picture(self, path):
        """All of the page, to its end."""
        whole = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(whole["data"]))

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()
