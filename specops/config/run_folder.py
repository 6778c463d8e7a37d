"""Where the results of a rollout are stored: in runs/NAME beside its rollout file."""

from __future__ import annotations

from pathlib import Path

from specops.errors import ConfigError


def beside(file: Path, name: str) -> Path:
    """The folder of the rollout file `file` for a rollout called `name`, as an absolute path."""
    return file.resolve().parent / "runs" / name


def run_folder(file: Path, name: str, out: Path | None = None) -> Path:
    """The run folder of the rollout file `file`, whose rollout is called `name`; `out` where that is given.

    The folder depends on the file alone, not on the working directory: every command of one rollout reads
    the same results, and a second guard of it finds the lock of the first. Symbolic links are followed for
    the same reason. The path is relative where the folder lies below the working directory.

    Raises ConfigError where only the working directory has runs/NAME with results in it: earlier releases
    stored them there.
    """
    if out is not None:
        return out
    here = Path.cwd()
    folder = beside(file, name)
    earlier = here / "runs" / name
    if not folder.exists() and earlier.resolve() != folder and any(earlier.glob("*.json")):
        raise ConfigError(
            f"the run folder of {file} is {folder}, which does not exist; results of an earlier release"
            f" may be in {earlier}",
            hint=f"if they are of this rollout: mkdir -p {folder.parent} && mv {earlier} {folder}; "
            f"if not: mkdir -p {folder}",
        )
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
