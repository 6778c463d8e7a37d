"""A real Chromium, driven over its DevTools protocol: what it asks for, says and shows of a page.

A browser that is not installed is a skip with its reason; in CI it is a failure.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp
from daemons import program, stop, wait_until

CONTRAST = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const found = rgb(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const seen = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ["style", "title"].includes(node.tagName.toLowerCase())) continue;
    const style = getComputedStyle(node);
    const ink = rgb(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
    seen.push([(a + .05) / (b + .05), texts.currentNode.data.trim().slice(0, 30)]);
  }
  return seen.sort((x, y) => x[0] - y[0]).slice(0, 3);
})()
"""
"""The lowest contrasts of text on its background, lowest first: [ratio, text]."""

ANNOUNCED = re.compile(r"DevTools listening on (ws://\S+)")


class Page:
    """One tab. `requests` are the addresses that it asked for, `complaints` what the console got."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket, self._session = socket, session
        self._number = 1  # of what the browser was asked before
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, "sessionId": self._session}
        await self._socket.send_json(message)
        while True:
            got = await self._next()
            if got.get("id") == self._number:
                assert "error" not in got, f"{method}: {got['error']}"
                found: dict[str, Any] = got["result"]
                return found

    async def _next(self) -> dict[str, Any]:
        got: dict[str, Any] = json.loads((await self._socket.receive(timeout=30)).data)
        match got.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(got["params"]["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(got["params"])[:500])
            case "Page.loadEventFired":
                self._loaded = True
        return got

    async def open(self, address: str) -> None:
        self._loaded = False
        await self.ask("Page.navigate", url=address)
        while not self._loaded:
            await self._next()

    async def evaluate(self, expression: str) -> Any:
        got = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    async def look(self, *, dark: bool = False, width: int = 1200, media: str = "") -> None:
        """Shows the page so from now on."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.ask("Emulation.setEmulatedMedia", media=media, features=scheme)
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def png(self) -> bytes:
        got = await self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(got["data"])

    async def pdf(self) -> bytes:
        got = await self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(got["data"])


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Page]:
    """Without a network of its own making, and gone whatever happens."""
    log = folder / "chromium.log"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
    options += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0", "about:blank"]
    with log.open("wb") as output:
        browser = _started([program("chromium"), *options], output)
    try:
        wait_until(lambda: ANNOUNCED.search(log.read_text(errors="replace")), "Chromium to come up", 60)
        found = ANNOUNCED.search(log.read_text(errors="replace"))
        assert found is not None
        async with aiohttp.ClientSession() as session, session.ws_connect(found[1], max_msg_size=0) as socket:
            yield await _page(socket)
    finally:
        await asyncio.to_thread(stop, browser)


def _started(command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


async def _page(socket: aiohttp.ClientWebSocketResponse) -> Page:
    target = await _of_browser(socket, "Target.createTarget", url="about:blank")
    attached = await _of_browser(socket, "Target.attachToTarget", targetId=target["targetId"], flatten=True)
    page = Page(socket, attached["sessionId"])
    for domain in ("Page", "Network", "Runtime", "Log"):
        await page.ask(f"{domain}.enable")
    return page


async def _of_browser(
    socket: aiohttp.ClientWebSocketResponse, method: str, **parameters: Any
) -> dict[str, Any]:
    await socket.send_json({"id": 1, "method": method, "params": parameters})
    while True:
        got = json.loads((await socket.receive(timeout=30)).data)
        if got.get("id") == 1:
            found: dict[str, Any] = got["result"]
            return found
