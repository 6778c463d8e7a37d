"""The files of a checkpoint: in a local folder, or in a repository of the hub.

Of a repository, only requested files are downloaded: small files whole, into the hub's usual cache, and of
weights the headers and small tensors alone, by range requests. huggingface_hub finds the token of a gated
repository itself (HF_TOKEN or a login). It is imported only where a repository is read, since a folder does
not need it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any, Protocol, TypeVar

from specops.checkpoints.gguf import SUFFIX, Gguf
from specops.checkpoints.pickled import read_pickled
from specops.errors import HubError, ModelError, UsageError
from specops.hints import listing, with_value

LONGEST_HEADER = 100_000_000
"""Bytes; safetensors itself refuses longer ones."""

LONGEST_TENSOR = 4_000_000
"""Bytes of a tensor that is read from the hub: a map of a vocabulary has a few hundred thousand."""

LFS_POINTER = b"version "
"""The first 8 bytes of a file that Git LFS left in place of its content."""

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}
"""Bytes of one number, by safetensors dtype. Others, such as 4-bit ones, are not checked."""

T = TypeVar("T")


class Checkpoint(Protocol):
    """Read access to a checkpoint's files. Each method raises ModelError if a file cannot be read."""

    @property
    def name(self) -> str:
        """The path or hub id, as it was given."""

    @property
    def revision(self) -> str | None:
        """The commit of a repository; None for a folder."""

    def file(self, name: str) -> Path | None:
        """The path of a small file, whole and on this disk; None if the checkpoint has none of that name."""

    def names(self) -> list[str]:
        """The names of all files, sorted."""

    def header(self, name: str) -> dict[str, Any]:
        """The header of a safetensors file: {tensor: {dtype, shape, data_offsets}}."""

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        """The bytes of a small tensor at `offsets` behind the header of file `name`.

        None where they cannot be read alone.
        """


def find(name: str) -> Checkpoint:
    """The checkpoint that `name` means: a folder or a GGUF file if there is one, else a hub id.

    Raises UsageError if `name` can be neither, ModelError if the hub does not have or give it.
    """
    path = Path(name)
    if path.is_dir():
        return Folder(path)
    if path.is_file() and path.suffix == SUFFIX:
        return Gguf(path)
    if path.exists():
        raise UsageError(
            f"could not read a model from {name}: expected a folder or a GGUF file",
            hint=with_value(name, path.parent),
        )
    if not HUB_ID.fullmatch(name) or name.startswith("."):
        raise UsageError(
            f"there is no {'file' if path.suffix == SUFFIX else 'folder'} {name}: expected a folder with a "
            "config.json, a GGUF file, or a hub id such as ORG/NAME",
            hint=listing(path.parent),
        )
    return _repository(name)


def access_check(name: str) -> str:
    """Return the command that shows a checkpoint: its files, or the answer of the hub."""
    if Path(name).exists():
        return listing(name)
    return f'curl -sSI "${{HF_ENDPOINT:-https://huggingface.co}}/{name}"'


class Folder:
    """A checkpoint in a local folder."""

    revision = None

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or str(path)

    def file(self, name: str) -> Path | None:
        path = self.path / name
        if path.is_symlink() and not path.exists():  # of the hub's cache, copied without its blobs
            raise ModelError(
                f"could not read {path}: it is a link to {path.readlink()}, which does not exist; copy "
                "the folder with the files that its links lead to (cp -rL), or download the model again",
                hint=listing(self.path),
            )
        return path if path.is_file() else None

    def names(self) -> list[str]:
        names = sorted(path.name for path in self.path.iterdir() if path.is_file() or path.is_symlink())
        return [name for name in names if self.file(name) is not None]

    def header(self, name: str) -> dict[str, Any]:
        return _read_header(self.path / name)

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        with (self.path / name).open("rb") as file:
            file.seek(8 + int.from_bytes(file.read(8), "little") + offsets[0])
            return file.read(offsets[1] - offsets[0])


def _read_header(path: Path) -> dict[str, Any]:
    """The file begins with the header's length, 8 bytes, little-endian, and the header, a JSON object
    (https://huggingface.co/docs/safetensors)."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start == LFS_POINTER:
                raise ValueError("it is a Git LFS pointer, not the weights (git lfs pull downloads them)")
            length = int.from_bytes(start, "little")
            if not 2 <= length <= LONGEST_HEADER:
                raise ValueError(f"its header would be {length} bytes long")
            header = json.loads(file.read(length))
            size = file.seek(0, SEEK_END)
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        ends = [_offsets(entry)[1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
        if size < expected:
            raise ValueError(f"the file has {size:,} bytes, its header describes {expected:,}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"could not read the header of {path}: {error}; copy or download the weights again",
            hint=listing(path),
        ) from error
    return header


def _offsets(entry: Any) -> tuple[int, int]:
    """Return data_offsets of a tensor in a header. Raises ValueError unless they are two ascending
    numbers."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    match offsets:
        case [int(begin), int(end)] if 0 <= begin <= end:
            return begin, end
    raise ValueError(f"invalid data_offsets {offsets!r}: expected two ascending numbers")


class Repository:
    """One commit of a repository of the hub: all later reads are of that commit."""

    def __init__(self, name: str) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        self.name = name
        self._api = HfApi()
        info = _from_hub(name, lambda: self._api.model_info(name))
        self.revision = info.sha
        self._files = {sibling.rfilename for sibling in info.siblings or []}

    def file(self, name: str) -> Path | None:
        if name not in self._files:
            return None
        return Path(
            _from_hub(self.name, lambda: self._api.hf_hub_download(self.name, name, revision=self.revision))
        )

    def names(self) -> list[str]:
        return sorted(self._files)

    def header(self, name: str) -> dict[str, Any]:
        metadata = _from_hub(
            self.name,
            lambda: self._api.parse_safetensors_file_metadata(self.name, name, revision=self.revision),
        )
        return {
            tensor: {"dtype": info.dtype, "shape": info.shape, "data_offsets": info.data_offsets}
            for tensor, info in metadata.tensors.items()
        }

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        if offsets[1] - offsets[0] > LONGEST_TENSOR:
            return None
        start = self._bytes(name, 0, 8)
        if len(start) != 8:
            return None
        first = 8 + int.from_bytes(start, "little") + offsets[0]
        content = self._bytes(name, first, first + offsets[1] - offsets[0])
        return content if len(content) == offsets[1] - offsets[0] else None

    def _bytes(self, name: str, first: int, end: int) -> bytes:
        """Bytes `first` to `end` of a file; none where the server does not answer in ranges."""
        from huggingface_hub import hf_hub_url, utils

        web: Any = utils  # it exports these without a type

        def request() -> bytes:
            url = hf_hub_url(self.name, name, revision=self.revision)
            headers = web.build_hf_headers() | {"Range": f"bytes={first}-{end - 1}"}
            answer = web.get_session().get(url, headers=headers)
            web.hf_raise_for_status(answer)
            return bytes(answer.content) if answer.status_code == 206 else b""

        return _from_hub(self.name, request)


def _repository(name: str) -> Checkpoint:
    """The repository; with HF_HUB_OFFLINE set, its newest commit in the hub's cache."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        return Repository(name)
    except OfflineModeIsEnabled:
        cached = _cached(name)
        if cached is None:
            raise HubError(
                f"could not read {name}: HF_HUB_OFFLINE is set, and the hub's cache has nothing of it",
                hint="unset HF_HUB_OFFLINE  # or give a local folder in place of the hub id",
            ) from None
        return Folder(cached, name)


def _cached(name: str) -> Path | None:
    """The newest cached commit. The cache is scanned, since files requested by commit have no branch name."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = [repo for repo in scan_cache_dir().repos if (repo.repo_type, repo.repo_id) == ("model", name)]
    except CacheNotFound:
        return None
    commits = [commit for repo in repos for commit in repo.revisions]
    newest = max(commits, key=lambda commit: commit.last_modified, default=None)
    return Path(newest.snapshot_path) if newest else None


def _from_hub(name: str, request: Callable[[], T]) -> T:
    """The answer to `request`, with huggingface_hub's errors as UsageError or ModelError."""
    from huggingface_hub import errors

    try:
        return request()
    except errors.OfflineModeIsEnabled:
        raise
    except errors.HFValidationError:
        raise UsageError(
            f"there is no folder {name}: expected a folder, or a hub id ORG/NAME",
            hint=listing(Path(name).parent),
        ) from None
    except errors.GatedRepoError as error:
        raise HubError(
            f"could not read {name} from the hub: its owners give access on request, on the model's page",
            hint="export HF_TOKEN=hf_…  # the token of an account that has access",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"could not read {name}: there is no such folder, and the hub has no model of that name; "
            "a private model needs HF_TOKEN",
            hint=access_check(name),
        ) from error
    except errors.SafetensorsParsingError as error:
        raise ModelError(f"could not read the weights' header of {name}: {error}") from error
    except Exception as error:  # those of its HTTP client, which differs between its major versions
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HubError(
            f"could not read {name} from the hub: {first_line}",
            hint=f"{access_check(name)}  # HF_HUB_OFFLINE=1 uses what was downloaded before",
        ) from error


def read_json(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """A JSON object of the checkpoint; None if it has no such file. Raises ModelError if it is damaged."""
    path = checkpoint.file(name)
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"could not read {name} of {checkpoint.name}: {error}; copy or download the model again",
            hint=listing(path),
        ) from error
    if not isinstance(content, dict):
        raise ModelError(
            f"could not read {name} of {checkpoint.name}: expected a JSON object",
            hint=access_check(checkpoint.name),
        )
    return content


@dataclass(frozen=True)
class Tensor:
    """A tensor as its header describes it."""

    dtype: str
    shape: tuple[int, ...]
    size: int
    """Bytes."""

    file: str = ""
    offsets: tuple[int, int] = (0, 0)
    """Its first and last byte in `file`, counted from the end of the header."""


@dataclass(frozen=True)
class Weights:
    """The tensors of a checkpoint, without their values."""

    size: int
    """Bytes of all tensors."""

    tensors: dict[str, Tensor]
    """Tensors by name. Empty if the index of a sharded checkpoint is here and its shards are not."""

    index: tuple[str, ...] = ()
    """Names in the index of a sharded checkpoint whose shards are not here."""

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors, whether their shapes were read or not."""
        return self.tensors or self.index

    @property
    def dtypes(self) -> dict[str, int]:
        """Bytes of each dtype, the largest first."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def ends_with(self, name: str) -> Tensor | None:
        """The tensor of that name under any prefix; the first by name if there are several."""
        for full in sorted(self.tensors):
            if full == name or full.endswith("." + name):
                return self.tensors[full]
        return None


def weights_of(checkpoint: Checkpoint) -> Weights | None:
    """The tensors of a checkpoint, sharded or not, from its safetensors headers.

    PyTorch's own files are read where there are no safetensors. None if neither can be read. Raises
    ModelError if a header or the index is damaged, or if some of the shards are missing.
    """
    names = checkpoint.names()
    if SINGLE in names:
        return _weights(checkpoint, [SINGLE], f"{SINGLE} of {checkpoint.name}")
    index = read_json(checkpoint, INDEX)
    if index is not None:
        return _sharded(checkpoint, index, set(names))
    loose = [name for name in names if name.endswith(".safetensors")]
    if loose:  # such as a head's, under a name of its own
        _whole(checkpoint, loose)
        return _weights(checkpoint, loose, f"the weights of {checkpoint.name}")
    return pickled_weights(checkpoint, names)


def pickled_weights(checkpoint: Checkpoint, names: Sequence[str]) -> Weights | None:
    """The tensors of PyTorch's own files in a local folder; None if there are none, or one cannot be read."""
    tensors: dict[str, Tensor] = {}
    for name in (name for name in names if name.endswith((".bin", ".pt", ".pth"))):
        path = checkpoint.file(name) if checkpoint.revision is None else None
        described = read_pickled(path) if path is not None else None
        if described is None:
            return None
        tensors |= {
            tensor: Tensor(dtype, shape, math.prod(shape) * WIDTHS.get(dtype, 1), name)
            for tensor, (dtype, shape) in described.items()
        }
    return Weights(sum(tensor.size for tensor in tensors.values()), tensors) if tensors else None


def _whole(checkpoint: Checkpoint, files: list[str]) -> None:
    """Raise ModelError where names such as model-00001-of-00003.safetensors say that there are more files."""
    for name in files:
        match = SHARD.fullmatch(name)
        if match is None:
            continue
        stem, count, width = match[1], int(match[3]), len(match[2])
        shards = [f"{stem}-{n:0{width}}-of-{match[3]}.safetensors" for n in range(1, count + 1)]
        present = [shard for shard in shards if shard in files]
        if len(present) < count:
            raise _missing(checkpoint, present, shards)


def _missing(checkpoint: Checkpoint, present: list[str], shards: list[str]) -> ModelError:
    missing = next(shard for shard in shards if shard not in present)
    return ModelError(
        f"could not use the weights of {checkpoint.name}: {len(present)} of {len(shards)} shards are here, "
        f"{missing} is missing: the download is not complete",
        hint=access_check(checkpoint.name),
    )


def _sharded(checkpoint: Checkpoint, index: dict[str, Any], names: set[str]) -> Weights:
    """Return the tensors from all shards, or from the index alone if none of them is here (a download of the
    small files)."""
    description = f"{INDEX} of {checkpoint.name}"
    try:
        shards = sorted(set(index["weight_map"].values()))
        present = sorted(names.intersection(shards))
        if len(present) == len(shards):
            return _weights(checkpoint, shards, description)
        if not present:
            return Weights(int(index["metadata"]["total_size"]), {}, tuple(index["weight_map"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(checkpoint, description, error) from error
    raise _missing(checkpoint, present, shards)


def _weights(checkpoint: Checkpoint, files: list[str], description: str) -> Weights:
    tensors = {}
    try:
        for file in files:
            for name, entry in checkpoint.header(file).items():
                if name != "__metadata__":
                    tensors[name] = _tensor(file, name, entry)
        return Weights(sum(tensor.size for tensor in tensors.values()), tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(checkpoint, description, error) from error


def _tensor(file: str, name: str, entry: dict[str, Any]) -> Tensor:
    begin, end = _offsets(entry)
    dtype, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
    width = WIDTHS.get(dtype)
    if width is not None and end - begin != math.prod(shape) * width:
        raise ValueError(f"{name} of shape {list(shape)} and type {dtype} cannot have {end - begin:,} bytes")
    return Tensor(dtype, shape, end - begin, file, (begin, end))


def _damaged(checkpoint: Checkpoint, description: str, error: Exception) -> ModelError:
    return ModelError(
        f"could not read {description}: {type(error).__name__} {error}; copy or download the weights again",
        hint=access_check(checkpoint.name),
    )
