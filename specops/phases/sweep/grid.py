"""What a rollout asks a sweep to try: its settings and its loads. Pure.

A pool and a number of tokens K make a setting: each engine has its own word for K. On the embedded engine K
is `chain:K`, or `ngram:K` where the pool drafts by n-grams; `trees` takes the place of K there. In a command
of the user's own it is written where the command says {k}. Endpoints that run already are given by K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from specops.config import (
    CommandPool,
    EmbeddedPool,
    EndpointPool,
    Pool,
    Rollout,
    SglangPool,
    Sweep,
    VllmPool,
)
from specops.errors import ConfigError, UsageError
from specops.exits import exit_layers
from specops.phases.sweep.jobs import STANDARD, Load, Setting
from specops.trees import parse_tree

K = "{k}"


def settings_of(rollout: Rollout, folder: Path) -> list[Setting]:
    """The standard, and every setting that is tried beside it. ConfigError for a pool that has no K.

    Folders of drafts are relative to `folder`, the rollout file's.
    """
    pool, asked = rollout.pools.speculative, rollout.sweep
    if isinstance(pool, EndpointPool):
        raise ConfigError(
            "the speculative pool is an endpoint that runs already, and its K is not specops's to set",
            hint="give endpoints by K: --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, rollout.pools.standard, k=0)
    return [standard, *_drafting(pool, asked, folder)]


def attached(endpoints: Mapping[int, EndpointPool]) -> list[Setting]:
    """Endpoints that run already, by their K. UsageError where one of K = 0, or any other, is missing."""
    if 0 not in endpoints or len(endpoints) < 2:
        raise UsageError(
            "a sweep compares endpoints that speculate with one that does not",
            hint="give both: --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, endpoints[0], k=0)
    return [standard, *(Setting(f"k={k}", pool, k) for k, pool in sorted(endpoints.items()) if k)]


def loads_of(rollout: Rollout, lengths: Iterable[str]) -> list[Load]:
    """Concurrency, ascending, within temperature, within class of prompt length."""
    asked, measure = rollout.sweep, rollout.measure
    concurrency = sorted(set(asked.concurrency or measure.concurrency))
    temperatures = sorted(set(asked.temperature or [measure.temperature]))
    return [
        Load(streams, temperature, length)
        for length, temperature, streams in product(lengths, temperatures, concurrency)
    ]


def _drafting(pool: Pool, asked: Sweep, folder: Path) -> list[Setting]:
    ks = sorted(k for k in set(asked.k) if k)
    if asked.trees is None and not ks:
        raise ConfigError("the sweep tries nothing but K = 0", hint="give sweep.k other numbers: [3, 4, 5]")
    if asked.trees is not None and not isinstance(pool, EmbeddedPool):
        raise ConfigError(
            f"trees are the embedded engine's, and the speculative pool is of engine {pool.engine}",
            hint="give sweep.k in place of sweep.trees",
        )
    match pool:
        case EmbeddedPool():
            trees = list(dict.fromkeys(asked.trees)) if asked.trees else [f"{_kind(pool)}:{k}" for k in ks]
            folders = {name: _folder(folder, draft) for name, draft in (asked.drafts or {}).items()}
            return _embedded(pool, trees, folders, named_by_k=asked.trees is None)
        case VllmPool():
            return _by_k(ks, asked.drafts, lambda k, draft: _vllm(pool, k, draft))
        case SglangPool():
            return _by_k(ks, asked.drafts, lambda k, draft: _sglang(pool, k, draft))
        case CommandPool():
            return _by_k(ks, asked.drafts, lambda k, draft: _command(pool, k, draft))
    raise AssertionError(pool)


def _by_k(
    ks: Iterable[int], drafts: Mapping[str, str] | None, pool_of: Callable[[int, str | None], Pool]
) -> list[Setting]:
    return [
        Setting(_named(f"k={k}", name), pool_of(k, draft), k, draft=name)
        for (name, draft), k in product(drafts.items() if drafts else [(None, None)], ks)
    ]


def _named(what: str, draft: str | None) -> str:
    return f"{draft} {what}" if draft else what


def _kind(pool: EmbeddedPool) -> str:
    assert pool.speculation is not None  # Pools refuses the speculative pool otherwise
    return "ngram" if parse_tree(pool.speculation.tree).kind == "ngram" else "chain"


def _embedded(
    pool: EmbeddedPool, trees: Sequence[str], drafts: Mapping[str, Path], *, named_by_k: bool
) -> list[Setting]:
    """Trees that need no draft are tried once, whatever drafts there are."""
    assert pool.speculation is not None
    own = parse_tree(pool.speculation.tree).kind
    settings = []
    for tree in trees:
        spec = parse_tree(tree)
        for name, draft in drafts.items() if drafts and spec.needs_draft else [(None, None)]:
            update: dict[str, object] = {"tree": tree}
            update |= {"draft": draft} if draft else {}
            # Another kind of tree is drawn in another way, for which the verifier may not be lossless.
            update |= {"verifier": None} if spec.kind != own else {}
            speculation = pool.speculation.model_copy(update=update)
            what = f"k={spec.depth}" if named_by_k else tree
            served = pool.model_copy(update={"speculation": speculation})
            settings.append(Setting(_named(what, name), served, spec.depth, tree, name))
    return settings


def _folder(folder: Path, draft: str) -> Path:
    if exit_layers(draft) is not None:
        return Path(draft)
    path = folder / Path(draft).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"there is no folder {path}, which sweep.drafts names",
            hint="drafts of the embedded engine are folders, relative to the rollout file, or exit:LAYERS",
        )
    return path.absolute()


def _vllm(pool: VllmPool, k: int, draft: str | None) -> VllmPool:
    assert pool.speculation is not None
    # A schedule by batch size would set K itself.
    update: dict[str, object] = {"num_speculative_tokens": k, "num_speculative_tokens_per_batch_size": None}
    update |= {"model": draft} if draft else {}
    return pool.model_copy(update={"speculation": pool.speculation.model_copy(update=update)})


def _sglang(pool: SglangPool, k: int, draft: str | None) -> SglangPool:
    assert pool.speculation is not None
    update: dict[str, object] = {"num_steps": k}
    update |= {"num_draft_tokens": None} if pool.speculation.eagle_topk == 1 else {}
    update |= {"draft_model_path": draft} if draft else {}
    return pool.model_copy(update={"speculation": pool.speculation.model_copy(update=update)})


def _command(pool: CommandPool, k: int, draft: str | None) -> CommandPool:
    if K not in pool.command:
        raise ConfigError(
            f"the command of the speculative pool does not say {K}, where a sweep writes the K that it tries",
            hint=f"write {K} in place of its number of speculative tokens",
        )
    if draft is not None:
        raise ConfigError(
            "a sweep cannot put drafts into a command of yours",
            hint="leave sweep.drafts out, or describe the pool with engine: vllm or engine: sglang",
        )
    return pool.model_copy(update={"command": pool.command.replace(K, str(k))})
