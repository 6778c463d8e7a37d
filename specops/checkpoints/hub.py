"""A repository of the hub, through huggingface_hub: its errors as sentences, its progress bars off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import HfApi, hf_hub_download, scan_cache_dir
from huggingface_hub.errors import (
    CacheNotFound,
    GatedRepoError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    SafetensorsParsingError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from specops.checkpoints.source import Checkpoint, Folder
from specops.errors import ModelError, UsageError

T = TypeVar("T")


class Repository:
    """One commit of a repository: whatever is asked for later is of that commit."""

    def __init__(self, name: str) -> None:
        disable_progress_bars()
        self.name = name
        self._api = HfApi()
        info = _asking(name, lambda: self._api.model_info(name))
        self.revision = info.sha
        self._files = {sibling.rfilename for sibling in info.siblings or []}

    def file(self, name: str) -> Path | None:
        if name not in self._files:
            return None
        return Path(_asking(self.name, lambda: hf_hub_download(self.name, name, revision=self.revision)))

    def names(self) -> list[str]:
        return sorted(self._files)

    def header(self, name: str) -> dict[str, Any]:
        found = _asking(
            self.name,
            lambda: self._api.parse_safetensors_file_metadata(self.name, name, revision=self.revision),
        )
        return {
            tensor: {"dtype": info.dtype, "shape": info.shape, "data_offsets": info.data_offsets}
            for tensor, info in found.tensors.items()
        }

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        return None


def repository(name: str) -> Checkpoint:
    """The repository, or, with HF_HUB_OFFLINE set, what of its newest commit lies in the hub's cache."""
    try:
        return Repository(name)
    except OfflineModeIsEnabled:
        cached = _cached(name)
        if cached is None:
            raise ModelError(
                f"could not read {name}: HF_HUB_OFFLINE is set, and the hub's cache has nothing of it",
                hint="unset HF_HUB_OFFLINE, or give a local folder",
            ) from None
        return Folder(cached, name)


def _cached(name: str) -> Path | None:
    """By looking: files that were asked for by their commit are under no branch's name."""
    try:
        repos = [repo for repo in scan_cache_dir().repos if (repo.repo_type, repo.repo_id) == ("model", name)]
    except CacheNotFound:
        return None
    commits = [commit for repo in repos for commit in repo.revisions]
    newest = max(commits, key=lambda commit: commit.last_modified, default=None)
    return Path(newest.snapshot_path) if newest else None


def _asking(name: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except OfflineModeIsEnabled:
        raise
    except HFValidationError:
        raise UsageError(
            f"there is no folder {name}, and it is no hub id either", hint="a hub id is ORG/NAME"
        ) from None
    except GatedRepoError as error:
        raise ModelError(
            f"could not read {name} from the hub: its owners give access on request",
            hint="ask for it on the model's page, then set HF_TOKEN",
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"could not read {name}: there is no such folder, and the hub has no model of that name",
            hint="check the spelling; a private model needs HF_TOKEN",
        ) from error
    except SafetensorsParsingError as error:
        raise ModelError(f"could not read the weights' header of {name}: {error}") from error
    except Exception as error:  # those of its HTTP client, which is another one in every major version
        raise ModelError(
            f"could not read {name} from the hub: {_first_line(error)}",
            hint="check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 reads what was downloaded before",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
