"""A file that others read, in the form of a router's switch."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field

from specops.actions.action import SWITCH_KEY, Action, Site, Target
from specops.errors import FileError
from specops.hints import listing
from specops.owned_file import check_owned, created


class FlagFileAction(Action):
    """A file that other programs read: {"speculative_percent": 100}."""

    kind: Literal["flag_file"]
    path: str = Field(
        pattern=r"^/",
        description="Absolute path of the file, which is replaced as a whole; its folder must exist.",
    )

    def targets(self, site: Site) -> list[Target]:
        return [FlagFile(self.path)]


class FlagFile(Target):
    def __init__(self, path: str) -> None:
        self.name = f"file {path}"
        self._path = Path(path)

    @property
    def identity(self) -> str:
        return f"file {self._path.resolve()}"

    def read(self) -> int:
        """A file that is not there yet says 100: nothing was switched."""
        try:
            with self._path.open(encoding="utf-8") as file:
                check_owned(self._path, file.fileno())
                flag = json.load(file)
            percent = flag[SWITCH_KEY]
            if isinstance(percent, int) and not isinstance(percent, bool) and 0 <= percent <= 100:
                return percent
        except FileNotFoundError:
            return 100
        except OSError as error:
            raise FileError(
                f"could not read the flag {self._path}: {error.strerror}", hint=listing(self._path)
            ) from error
        except (ValueError, KeyError, TypeError):
            pass
        raise FileError(
            f'could not read the flag {self._path}: expected JSON such as {{"{SWITCH_KEY}": 100}}',
            hint=f"cat {shlex.quote(str(self._path))}",
        )

    def set(self, percent: int) -> None:
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with os.fdopen(created(new), "w", encoding="utf-8") as out:
                if self._path.exists():  # whoever reads it as a member of its group goes on reading it
                    with suppress(PermissionError):
                        os.fchown(out.fileno(), -1, self._path.stat().st_gid)
                out.write(json.dumps({SWITCH_KEY: percent}) + "\n")
                out.flush()
                os.fsync(out.fileno())
            new.replace(self._path)
        except OSError as error:
            raise FileError(
                f"could not write the flag {self._path}: {error.strerror}; its folder must exist, and this "
                "user "
                "must be able to write to it",
                hint=f"ls -ld {shlex.quote(str(self._path.parent))}",
            ) from error
