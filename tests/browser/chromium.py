"""A headless Chromium on a pipe: the DevTools protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The first browser on the search path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a headless browser.

    Attributes
    ----------
    errors : list of str
        Console errors and uncaught exceptions so far.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._id = 0
        self._rest = b""

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        command = [
            self._program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={self._profile.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # The browser reads descriptor 3 and writes 4; first away from those numbers, then onto them.
        wrapper = (
            "import os, sys, fcntl\n"
            "a, b = (fcntl.fcntl(int(k), fcntl.F_DUPFD, 10) for k in sys.argv[1:3])\n"
            "os.dup2(a, 3); os.dup2(b, 4); os.execvp(sys.argv[3], sys.argv[3:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", wrapper, str(to_child), str(from_child), *command],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._session: str | None = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 16)
            if not more:
                raise ConnectionError("the browser is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def send(self, method: str, **parameters: Any) -> Any:
        """One command and its answer; events on the way are noted."""
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._id:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        method, params = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning")) or (
            method == "Log.entryAdded" and params["entry"]["level"] == "error"
        ):
            self.errors.append(json.dumps(params))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file at a size, and wait until it is drawn."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )
        self.send("Page.navigate", url=page.resolve().as_uri())
        self.run("new Promise(done => { const look = () => document.readyState === 'complete' ? done() : "
                 "setTimeout(look, 20); look(); })")  # fmt: skip
        self.settle()

    def settle(self) -> None:
        """Two frames later everything asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        told = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"]))
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """One key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {}
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **more)
        self.settle()

    def screenshot(self, file: Path, full: bool = False) -> None:
        """A PNG of what is in sight, or of the whole page."""
        told = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        file.write_bytes(base64.b64decode(told["data"]))
