"""Location of the files that ship with specops: in the wheel, or in the checkout of an editable install."""

from __future__ import annotations

import shlex
from pathlib import Path

from specops.errors import FileError

_PACKAGE = Path(__file__).parent


def restore_command() -> str:
    """A command that brings missing shipped files back."""
    if (_PACKAGE / "_assets").is_dir():
        return "pip install --force-reinstall --no-deps FILE.whl  # the wheel that specops was installed from"
    return f"git -C {shlex.quote(str(_PACKAGE.parent))} checkout -- playbooks"


def asset(*parts: str) -> Path:
    """The path of a shipped file or folder, such as `asset("playbooks", "embedded", "target")`."""
    packed = _PACKAGE / "_assets"
    path = (packed if packed.is_dir() else _PACKAGE.parent).joinpath(*parts)
    if not path.exists():
        raise FileError(f"{path} is missing from this installation", hint=restore_command())
    return path
