"""Headless Chromium for tests, through chromedriver's own protocol (W3C WebDriver): no package is needed for that."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
SECONDS = 60


def missing() -> str:
    """Why there is no browser; empty where there is one."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        return "Chromium is not installed"
    return "" if shutil.which("chromedriver") else "chromedriver is not installed"


class Browser:
    """One tab."""

    def __init__(self, address: str, capabilities: dict[str, Any]) -> None:
        self.address = address
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{made['sessionId']}"

    def open(self, page: Path, place: str = "") -> None:
        self._ask("POST", f"{self.session}/url", {"url": page.as_uri() + place})

    def run(self, script: str, *args: Any) -> Any:
        """What the script's body returns."""
        return self._ask("POST", f"{self.session}/execute/sync", {"script": script, "args": list(args)})

    def run_async(self, script: str) -> Any:
        """What the script's body gives to ``done``."""
        body = f"const done = arguments[arguments.length - 1]; {script}"
        return self._ask("POST", f"{self.session}/execute/async", {"script": body, "args": []})

    def log(self) -> list[str]:
        """What the console said since the last call."""
        found = self._ask("POST", f"{self.session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in found]

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of Chrome's own protocol."""
        return self._ask("POST", f"{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        """As on a device of that many CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def click(self, x: float, y: float) -> None:
        """A real press of the left button there, in the window's pixels."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", f"{self.session}/screenshot")))

    def quit(self) -> None:
        self._ask("DELETE", self.session)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a new profile in that folder; its processes end with the block."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        found = Browser(_address(driver), {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}})
        try:
            yield found
        finally:
            found.quit()
    finally:
        driver.terminate()
        driver.wait(SECONDS)
        if driver.stdout is not None:
            driver.stdout.close()


def _address(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if port := re.search(r"started successfully on port (\d+)", line):
            return f"http://127.0.0.1:{port[1]}"
    raise RuntimeError("chromedriver did not start")
