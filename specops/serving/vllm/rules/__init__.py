"""Rules on what can be wrong with a command line of vLLM, a file a subject.

What a version knows is in tables (versions.json, execution.json), from the released sources. What a version
does with what it knows is in these files, with the release in whose source it was read, or the thread that
reports it. A new rule is a function and its entry here.
"""

from __future__ import annotations

from specops.serving.vllm.rules import environment, execution, flags, keys, method, sampling
from specops.serving.vllm.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    execution.dotted_compilation,
    execution.compilation_level,
    execution.attention,
    flags.unknown,
    flags.switches,
    flags.without_value,
    flags.deprecated,
    flags.last_release_with,
    environment.secrets,
    environment.variables,
    keys.unread,
    keys.unknown,
    keys.choices,
    keys.numbers,
    keys.twice,
    keys.trees,
    method.missing,
    method.unknown,
    method.missing_draft,
    method.missing_tokens,
    method.read_from_path,
    sampling.ngrams,
    sampling.lengths,
    sampling.acceptance,
    sampling.vocabularies,
    sampling.disable_by_batch_size,
    sampling.by_batch_size,
    execution.runner,
    execution.asynchronous,
    execution.pipeline_parallel,
    execution.draft_tensor_parallel,
    execution.per_request_metrics,
    execution.module,
)
