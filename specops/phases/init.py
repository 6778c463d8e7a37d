"""`init`: a commented rollout file to start from."""

from __future__ import annotations

from pathlib import Path

from specops.assets import asset
from specops.errors import FileError, UsageError

FILE_NAME = "rollout.yaml"


def write_rollout(folder: Path) -> Path:
    """Write `rollout.yaml` into `folder`, which is made where it is missing. Never overwrites."""
    text = asset("playbooks", "rollout.template.yaml").read_text(encoding="utf-8")
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} exists already and was left as it is", hint="give another folder, or remove it first"
        ) from None
    except OSError as error:
        raise FileError(
            f"could not write {path}: {error.strerror}", hint="give a folder that this user may write to"
        ) from error
    return path
