"""Typed settings and figures as text and pictures, and how texts are written as files. Nothing here measures,
sends requests or judges.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from specops.errors import FileError
from specops.hints import folder_state


def write_files(folder: Path, files: Mapping[str, str | None]) -> None:
    """Write each text, by its name below `folder`; None deletes the file. A script (.sh) is executable.

    Each file is replaced as a whole. Raises FileError if one cannot be written; the old file then stays.
    """
    for name, text in files.items():
        path = folder / name
        new = path.with_name(f".{path.name}.new")
        try:
            if text is None:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(text, encoding="utf-8")
            new.chmod(0o755 if path.suffix == ".sh" else 0o644)
            new.replace(path)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise FileError(
                f"could not write {path}: {os.strerror(error.errno or 0)}",
                hint=folder_state(path.parent),
            ) from error
