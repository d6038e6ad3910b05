"""Chromium with no window, told by its DevTools protocol: pages are loaded, looked at, judged and printed."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from itertools import count

from websocket import create_connection

from tests.cli.people import CHROMIUM

WITHIN_S = 300  # judging a long list takes half a minute where nothing else runs


class Chrome:
    """One Chromium with one page. What it writes to its console, and what it asks of a network, is kept."""

    def __init__(self, program, profile):
        self._process = subprocess.Popen(
            [program, *CHROMIUM, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        port, path = self._told(profile / "DevToolsActivePort")
        self._link = create_connection(f"ws://127.0.0.1:{port}{path}", timeout=WITHIN_S, suppress_origin=True)
        self._numbers = count(1)
        self._session = None
        self._seen = []
        (page,) = (one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _told(self, file):
        deadline = time.monotonic() + WITHIN_S
        while not file.exists() or "\n" not in file.read_text():
            assert self._process.poll() is None, f"Chromium ended with {self._process.returncode}"
            assert time.monotonic() < deadline, "Chromium never said its port"
            time.sleep(0.05)
        return file.read_text().split("\n")[:2]

    def ask(self, method, **params):
        """Return what the browser answers; its events are kept."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        self._link.send(json.dumps({"id": number, "method": method, "params": params, **session}))
        while (message := json.loads(self._link.recv())).get("id") != number:
            self._seen.append(message)
        assert "error" not in message, message
        return message["result"]

    def show(self, file, *, width, scheme="light", media="", height=900):
        """Load a file in a window so wide, in a colour scheme; return what it complained of and what it fetched."""
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=preferred)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._seen.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self._seen):
            self._seen.append(json.loads(self._link.recv()))
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.complaints, self.fetched

    @property
    def complaints(self):
        """What the page has written to the console, its errors, and dialogs that it opened."""
        wrong = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [one for one in self._seen if one.get("method") in wrong]

    @property
    def fetched(self):
        """All addresses that the page has asked for."""
        return [
            one["params"]["request"]["url"] for one in self._seen if one.get("method") == "Network.requestWillBeSent"
        ]

    def run(self, script):
        """Return what a script of ours says of the page; a promise is waited for."""
        told = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def picture(self, *, whole=True):
        """Return the page as PNG: all of it, or what the window shows."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def printed(self):
        """Return the page as PDF, on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        options = {"preferCSSPageSize": True, "printBackground": True, "generateTaggedPDF": True}
        return base64.b64decode(self.ask("Page.printToPDF", **size, **options)["data"])

    def end(self):
        """End it, with all that it has started."""
        self._session = None
        self.ask("Browser.close")
        self._link.close()
        self._process.wait(20)
