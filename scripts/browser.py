"""A headless Chromium over a pipe: measures and photographs pages with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from servetwin.cli.doctor import BROWSERS

_FLAGS: Final = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-extensions --disable-dev-shm-usage "
    "--hide-scrollbars --force-color-profile=srgb --disable-background-networking --remote-debugging-pipe"
)
# Finds texts cut by their own box or beyond the page's right edge. Text that can be scrolled into view within
# a card counts as cut: a reader of a narrow page must not need to scroll.
_MEASURE: Final = """(() => {
const cut = [], wide = document.documentElement.clientWidth;
for (const one of document.querySelectorAll('main *, body > *')) {
  const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const box = one.getBoundingClientRect();
  if (!own || !box.width || !one.checkVisibility()) continue;
  const range = document.createRange(); range.selectNodeContents(one);
  const text = range.getBoundingClientRect();
  const svg = one.ownerSVGElement && one.ownerSVGElement.getBoundingClientRect();
  const hangs = one.tagName === 'PRE' ? 10 : 1;  // a space at the end of a line takes no room
  const left = svg ? svg.left : 0, right = svg ? svg.right : wide;
  if (text.right > right + hangs || text.left < left - 1 || (!svg && text.right > box.right + hangs))
    cut.push(one.tagName + ': ' + one.textContent.trim().slice(0, 60));
}
const page = document.documentElement;
return {width: page.scrollWidth, wide, height: page.scrollHeight, cut};
})()"""


def installed() -> str | None:
    """Return the path of a browser on this machine."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A displayed page: px of the document and its window, cut texts, console errors, outside requests."""

    width: int
    wide: int
    height: int
    cut: list[str]
    errors: list[str]
    requested: list[str]


class Browser:
    """A context manager around a browser process; it shows one page at a time."""

    def __init__(self, program: str) -> None:
        self.program = program
        self._next = 0
        self._events: list[dict[str, Any]] = []
        self._session = ""

    def __enter__(self) -> Browser:
        self._home = tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True)
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        line = f'exec "$0" {_FLAGS} "--user-data-dir=$1" about:blank 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", line, self.program, self._home.name],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", {})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._home.cleanup()

    def look(self, page: Path, width: int, dark: bool = False, height: int = 900) -> Look:
        """Show a file in a window of ``width`` px."""
        address = page.resolve().as_uri()
        self.open(address, width, dark, height)
        measured = self.evaluate(_MEASURE)
        return Look(**measured, errors=self._errors(), requested=self._requested(address))

    def open(self, address: str, width: int, dark: bool = False, height: int = 900) -> None:
        """Show a file or a page of a server on this machine, once it has loaded."""
        self._events.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._call("Page.navigate", {"url": address})
        self._until("Page.loadEventFired")

    def type(self, text: str) -> None:
        """Give the focused element a text as the keyboard does."""
        self._call("Input.insertText", {"text": text})

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        result = self._call("Runtime.evaluate", {"expression": script, "returnByValue": True})
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self, path: Path, width: int, height: int) -> None:
        """Write a PNG of the page's top to ``path``."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        result = self._call("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(result["data"]))

    def _errors(self) -> list[str]:
        errors = []
        for event in self._events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                errors.append(str(parameters["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                errors.append(str(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                errors.append(parameters["entry"]["text"])
        return errors

    def _requested(self, address: str) -> list[str]:
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if url.partition("#")[0] != address and not url.startswith("data:")]

    def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._next:
            self._events.append(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _until(self, method: str) -> None:
        while not any(event["method"] == method for event in self._events):
            self._events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError(f"{self.program} has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))
