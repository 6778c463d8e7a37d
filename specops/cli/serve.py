"""`specops serve`: the embedded engine behind an OpenAI-compatible API."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import TypedDict

from specops.assets import asset
from specops.cli.call import (
    Call,
    GraceOption,
    HostOption,
    MaxQueueOption,
    PortOption,
    ThreadsOption,
    extra,
    log_to_stderr,
    shared_options,
)
from specops.errors import ModelError, UsageError
from specops.hints import with_options
from specops.trees import VERIFIER_NAMES

if TYPE_CHECKING:
    from specops.engine import Engine
    from specops.serve.worker_process import Worker

API_KEY = "SPECOPS_API_KEY"
EMBEDDED = "specops-embedded"  # the shipped pair's name

PREFIX_CACHE_MB = 256
"""Of each worker: 15,000 tokens of a target with 16 kB of KV a token."""


class Serving(TypedDict):
    base_url: str
    model: str


@shared_options()
def serve(
    call: Call,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    target: Annotated[
        Path | None, typer.Option(help="Folder of the model to serve; without it, the shipped pair.")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="Folder of the draft, a model or heads; or exit:LAYERS.")
    ] = None,
    tree: Annotated[
        str, typer.Option(help="Tree that is drafted, such as chain:3 or ngram:8; auto: planned.")
    ] = "chain:3",
    verifier: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(VERIFIER_NAMES)}; default: the best that is lossless."),
    ] = None,
    no_speculation: Annotated[
        bool, typer.Option("--no-speculation", help="Decode token by token, without a draft.")
    ] = False,
    max_batch: Annotated[int, typer.Option(min=1, help="Sequences that run at the same time.")] = 8,
    max_length: Annotated[
        int | None,
        typer.Option(min=2, help="Tokens of one sequence, prompt and output; default: the model's."),
    ] = None,
    max_queue: MaxQueueOption = 256,
    prefix_cache_mb: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Memory of a worker for beginnings of prompts, in MB; default: 256, with --parallel 0.",
        ),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name for clients; default: its folder's name.")
    ] = None,
    workers: Annotated[
        str,
        typer.Option(help="Engine processes: a number, or auto: by CPUs and memory. Each has --max-batch."),
    ] = "1",
    threads: ThreadsOption = None,
    device: Annotated[str, typer.Option(help="Device of target and draft: cpu, cuda or cuda:1.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    attention: Annotated[
        str, typer.Option(help="reference, which is PyTorch's, or kernel, the Triton kernel on a GPU.")
    ] = "reference",
    no_graphs: Annotated[
        bool, typer.Option("--no-graphs", help="Launch every kernel by itself: no CUDA graphs.")
    ] = False,
    offload: Annotated[
        str | None,
        typer.Option(help="disk or host: leave the target's layers there, and read them for every step."),
    ] = None,
    parallel: Annotated[
        str | None,
        typer.Option(help="tensor:2 or pipeline:2: lay the target on several devices of this machine."),
    ] = None,
    grace: GraceOption = 30.0,
) -> None:
    """SIGTERM or Ctrl-C lets the running requests finish; a second one ends the server at once. Where
    SPECOPS_API_KEY is set in the environment, clients must send it.
    """
    from specops.serve.admission import bind
    from specops.serve.engine_worker import start_in, starting
    from specops.serve.worker_count import worker_count
    from specops.serve.worker_process import Nursery, starting_several

    if no_speculation and draft is not None:
        raise UsageError(
            "--draft and --no-speculation exclude each other", hint=with_options({"--draft": None})
        )
    if target is None:
        name, target = EMBEDDED, asset("playbooks", "embedded", "target")
        if draft is None and not no_speculation:
            draft = asset("playbooks", "embedded", "draft")
    else:
        name = target.resolve().name

    def announce(url: str) -> None:
        drafts = "no speculation" if no_speculation else tree
        value = Serving(base_url=f"{url}/v1", model=settings.model)
        several = f", {count} workers" if count > 1 else ""
        call.announce(value, f"serving {settings.model} on {url} ({drafts}, batch {max_batch}{several})")

    loaded = [target, draft] if draft is not None and draft.is_dir() else [target]
    count = worker_count(
        workers,
        threads=threads,
        device=device,
        divided=parallel is not None,
        folders=loaded,
        cache_mb=PREFIX_CACHE_MB if prefix_cache_mb is None else prefix_cache_mb,
    )
    load = partial(
        load_served,
        target,
        draft,
        offload,
        parallel,
        tree=tree,
        verifier=verifier,
        speculate=not no_speculation,
        max_batch=max_batch,
        max_length=max_length,
        prefix_cache_mb=prefix_cache_mb,
        threads=1 if threads is None and count > 1 else threads,
        device=device,
        dtype=dtype,
        attention=attention,
        graphs=not no_graphs,
    )
    log_to_stderr(quiet=call.quiet)
    with bind(host, port) as bound, ExitStack() as stack:  # the address first: loading is slow
        restart = None
        if count == 1:
            ready = stack.enter_context(starting(load, [bound]))
            wait: Callable[[], list[Worker]] = lambda: [ready()]  # noqa: E731
        else:
            restart = partial(start_in, Nursery(["specops.engine.load"]), load)
            wait = stack.enter_context(starting_several(restart, count))
        # While the engine's process imports torch, which this one does without.
        with extra("serve", "start the server"):
            import jinja2.sandbox  # noqa: F401  # the first chat would wait for it

            from specops.engine.text import load_tokenizer
            from specops.serve.server import ServeSettings, serve_engine
        settings = ServeSettings(
            model=served_model_name or name,
            capacity=count * max_batch + max_queue,
            places=max_batch,
            speculative=not no_speculation and tree != "none",
            api_key=os.environ.get(API_KEY) or None,
            grace=grace,
        )
        try:
            tokenizer = load_tokenizer(target)
        except ModelError:
            wait()  # the engine's error, where there is one, says more
            raise
        serve_engine(wait(), tokenizer, settings, bound, announce, restart)


def load_served(
    target: Path,
    draft: Path | None,
    offload: str | None,
    parallel: str | None,
    *,
    prefix_cache_mb: int | None = None,
    **options: Any,
) -> Engine:
    """The engine that a worker serves; `options` are those of `load_engine`."""
    if prefix_cache_mb is None:
        prefix_cache_mb = PREFIX_CACHE_MB if parallel is None else 0
    with extra("serve", "start the server"):
        from specops.engine.load import load_engine
        from specops.engine.models.offload import Offload
        from specops.engine.parallel.process_group import Parallel
    return load_engine(
        target,
        draft,
        offload=None if offload is None else Offload(offload),  # type: ignore[arg-type]  # it looks itself
        parallel=None if parallel is None else Parallel.parse(parallel),
        prefix_cache_mb=prefix_cache_mb,
        **options,
    )
