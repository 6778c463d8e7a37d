"""Files of released wheels, read over HTTP ranges: a wheel is a zip, and its index is at its end."""

from __future__ import annotations

import io
import re
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INDEX = "https://pypi.org/simple/"
BLOCK = 1 << 18


class Remote(io.RawIOBase):
    """A file on a server, seekable. What was read is kept: a zip's index is read in many small pieces."""

    def __init__(self, url: str) -> None:
        self.url, self.position = url, 0
        asked = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            self.size = int(answer.headers["Content-Length"])
        self.blocks: dict[int, bytes] = {}

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        number, within = divmod(self.position, BLOCK)
        piece = self._block(number)[within : within + len(buffer)]
        buffer[: len(piece)] = piece
        self.position += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        first = number * BLOCK
        if first >= self.size:
            return b""
        if number not in self.blocks:
            last = min(first + BLOCK, self.size) - 1
            asked = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last}"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                if answer.status != 206:
                    raise OSError(f"{self.url} is not served in ranges")
                self.blocks[number] = answer.read()
        return self.blocks[number]


def released(package: str) -> dict[str, str]:
    """The URL of one Linux x86-64 (or pure) wheel of every final release, by version."""
    page = urllib.parse.urljoin(INDEX, f"{package}/")
    with urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": "text/html"})) as answer:
        links = re.findall(r'href="([^"#]+\.whl)', answer.read().decode())
    wheels = {}
    for link in links:
        version, tag = link.rsplit("/", 1)[1].split("-", 1)[1].rsplit(".", 1)[0].split("-", 1)
        if re.fullmatch(r"[\d.]+", version) and tag.endswith(("x86_64", "none-any")):
            wheels[version] = urllib.parse.urljoin(page, link)
    return wheels


@contextmanager
def opened(url: str) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(io.BufferedReader(Remote(url))) as wheel:
        yield wheel


def sources(package: str) -> dict[str, str]:
    """The URL of the source archive of every final release, by version."""
    page = urllib.parse.urljoin(INDEX, f"{package}/")
    with urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": "text/html"})) as answer:
        links = re.findall(r'href="([^"#]+\.tar\.gz)', answer.read().decode())
    versions = {link.rsplit("/", 1)[1].rsplit("-", 1)[1].removesuffix(".tar.gz"): link for link in links}
    return {v: urllib.parse.urljoin(page, link) for v, link in versions.items() if re.fullmatch(r"[\d.]+", v)}


def texts(url: str, read: re.Pattern[str], folder: Path | None) -> dict[str, str]:
    """The files of one wheel whose paths match `read`, by path. `folder`: where they are stored."""
    if folder is not None and folder.is_dir():
        paths = sorted(path for path in folder.rglob("*.py"))
        kept = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        return {path: text for path, text in kept.items() if read.fullmatch(path)}
    with opened(url) as wheel:
        found = {path: wheel.read(path).decode() for path in sorted(wheel.namelist()) if read.fullmatch(path)}
    if folder is not None:
        for path, text in found.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    return found


def ranges(numbers: list[int], versions: list[str]) -> str:
    """Such as "0.8.0-0.8.2,0.10.0-0.33.0"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{versions[first]}-{versions[last]}" for first, last in runs)


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
