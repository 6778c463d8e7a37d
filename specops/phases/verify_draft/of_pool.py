"""What `verify-draft` is asked of a rollout's pool, by what the rollout file says of its models."""

from __future__ import annotations

import shlex

from specops.assets import asset
from specops.config import EmbeddedPool, Pool, SglangPool, VllmPool
from specops.launch.vllm.installed import installed
from specops.phases.verify_draft.settings import VerifySettings
from specops.trees import parse_tree


def settings_for(pool: Pool) -> VerifySettings | None:
    """What `verify-draft` is asked of `pool`; None where its models are not known.

    A pair that is only degraded passes: it is lossless, and whether it pays is about to be measured.
    """
    match pool:
        case EmbeddedPool():
            target = pool.target or asset("playbooks", "embedded", "target")
            return VerifySettings(
                target=str(target), draft=_embedded(pool), engine="embedded", allow_degraded=True
            )
        case VllmPool():
            assert pool.speculation is not None
            method = pool.speculation.method
            without_model = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "suffix"}
            version = pool.version or installed(shlex.split(pool.program))
            return VerifySettings(
                target=pool.model,
                draft=without_model.get(method) or pool.speculation.model or pool.model,
                engine="vllm",
                engine_version=str(version) if version else None,
                tensor_parallel=pool.tensor_parallel_size or 1,
                allow_degraded=True,
            )
        case SglangPool():
            assert pool.speculation is not None
            ngram = pool.speculation.algorithm == "NGRAM"
            return VerifySettings(
                target=pool.model_path,
                draft="ngram" if ngram else pool.speculation.draft_model_path or pool.model_path,
                engine="sglang",
                engine_version=pool.version,
                tensor_parallel=pool.tp_size or 1,
                allow_degraded=True,
            )
    return None


def _embedded(pool: EmbeddedPool) -> str:
    assert pool.speculation is not None  # Pools refuses the speculative pool otherwise
    alone = pool.target is not None and pool.speculation.draft is None
    if alone or not parse_tree(pool.speculation.tree).takes_draft:
        return "ngram"
    return str(pool.speculation.draft or asset("playbooks", "embedded", "draft"))
