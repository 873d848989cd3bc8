"""Headless Chromium through chromedriver, for tests that look at pages as a person does. Standard library only."""

import base64
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class Browser:
    """A session of a browser. Scripts of tests run beside the page's content security policy, not under it."""

    def __init__(self, port: int, profile: Path):
        self._base = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._base += f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def size(self, width: int, height: int) -> None:
        """Make the page this many pixels wide and high."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)

    def dark(self, wanted: bool) -> None:
        """What the page hears of the user's preferred colours."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.cdp("Emulation.setEmulatedMedia", {"features": [feature]})

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})
        self.wait("return document.documentElement.dataset.ready === 'true'")

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """The first true value that a script returns."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return value

    def press(self, *keys: str) -> None:
        """Press keys, as a keyboard does: where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click(self, selector: str) -> None:
        """Click the first element that matches, where it is on the screen."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{next(iter(found.values()))}/click", {})

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def log(self, kind: str = "browser") -> list[dict[str, Any]]:
        """What the browser logged since it was last asked: ``browser`` (console, errors) or ``performance``."""
        return list(self._ask("POST", "/se/log", {"type": kind}))

    def requests(self) -> list[str]:
        """Addresses that the page asked for since this was last asked. The browser's own page, which is there when it
        starts, doesn't count."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in asked if not one["documentURL"].startswith("chrome:")]

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def close(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def start_browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile in ``folder``; it and its driver end with the block."""
    assert DRIVER, "no chromedriver"
    with (folder / "driver.log").open("w") as log:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert driver.stdout
            line = next(line for line in driver.stdout if "started successfully on port" in line)
            browser = Browser(int(line.rstrip(".\n").rsplit(" ", 1)[1]), folder / "profile")
            try:
                yield browser
            finally:
                with contextlib.suppress(RuntimeError, URLError):
                    browser.close()
        finally:
            driver.terminate()
            driver.wait(30)
