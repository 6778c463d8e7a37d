"""Where the files that ship with specops lie: in the wheel, or in the checkout of an editable install."""

from __future__ import annotations

from pathlib import Path

from specops.errors import FileError

_PACKAGE = Path(__file__).parent


def asset(*parts: str) -> Path:
    """The path of a shipped file or folder, such as `asset("playbooks", "embedded", "target")`."""
    packed = _PACKAGE / "_assets"
    path = (packed if packed.is_dir() else _PACKAGE.parent).joinpath(*parts)
    if not path.exists():
        raise FileError(
            f"{path} is missing from this installation", hint="install specops again, or make it anew"
        )
    return path
