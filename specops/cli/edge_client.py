"""The commands that draft here and verify elsewhere: `specops edge chat` and `specops edge serve`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy as copy_of
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from specops.assets import asset
from specops.cli.call import (
    Answer,
    Call,
    GraceOption,
    HostOption,
    MaxQueueOption,
    PortOption,
    ThreadsOption,
    TopPOption,
    extra,
    log_to_stderr,
    shared_options,
)
from specops.cli.output import print_error
from specops.cli.serve import API_KEY, Serving
from specops.edge.settings import DEFAULT
from specops.errors import EndpointError, SpecopsError, UsageError
from specops.hints import with_options

if TYPE_CHECKING:
    from specops.edge.client import EdgeEngine
    from specops.edge.conversation import Conversation, ConversationFigures
    from specops.engine.request import Sampling

TOKEN = "SPECOPS_EDGE_TOKEN"
SERVER = "127.0.0.1:8500"  # where a verify-server listens by default


def draft_folder(draft: Path | None) -> Path:
    return draft or asset("playbooks", "embedded", "draft")


@dataclass(frozen=True)
class EdgeOptions:
    """The options of a client that drafts here."""

    server: Annotated[str, typer.Option(help="HOST:PORT of a `specops edge verify-server`.")] = SERVER
    draft: Annotated[
        Path | None,
        typer.Option(help="Folder of the draft model and its tokenizer; default: the shipped draft."),
    ] = None
    copy: Annotated[
        bool,
        typer.Option(
            "--copy", help="Draft by copying from the text; of --draft the tokenizer alone is read."
        ),
    ] = False
    tls_ca: Annotated[
        str | None,
        typer.Option(help="Speak TLS: a PEM file of authorities to trust, or system for this machine's own."),
    ] = None
    insecure: Annotated[bool, typer.Option("--insecure", help="Send the token even without TLS.")] = False
    drafting: Annotated[
        str,
        typer.Option(help="Side that drafts: edge, server, or auto (the faster of the two)."),
    ] = "auto"
    nodes: Annotated[int, typer.Option(min=1, help="Maximum number of nodes in a tree.")] = DEFAULT.nodes
    beams: Annotated[int, typer.Option(min=1, help="Nodes that one pass of the draft runs.")] = DEFAULT.beams
    depth: Annotated[
        str, typer.Option(help="When a tree is sent: adaptive, included:D or excluded:D passes.")
    ] = "adaptive"
    heads: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of guessed outcomes to draft for during a round; 0: none, 1: as SpecEdge.",
        ),
    ] = DEFAULT.heads
    ahead: Annotated[
        int, typer.Option(min=0, help="Number of next trees to send before the verdict; 0: none.")
    ] = DEFAULT.ahead
    threads: ThreadsOption = None

    def client_maker(self, streams: int) -> Callable[[], EdgeEngine]:
        """Return what makes the client, wherever it is called; what is wrong with the options is said at
        once."""
        with extra("edge", "draft here"):
            from specops.edge.client import open_client
            from specops.edge.connection import Destination
            from specops.edge.fallback import Fallback
            from specops.edge.settings import Drafting, parse_depth
        fallbacks = {
            "auto": Fallback(),
            "edge": Fallback.always(server_drafts=False),
            "server": Fallback.always(server_drafts=True),
        }
        if self.drafting not in fallbacks:
            raise UsageError(
                f"invalid --drafting {self.drafting!r}: expected {', '.join(fallbacks)}",
                hint="specops edge chat --help",
            )
        destination = Destination(self.server, os.environ.get(TOKEN) or None, self.tls_ca, self.insecure)
        settings = Drafting(
            nodes=self.nodes,
            beams=self.beams,
            depth=parse_depth(self.depth),
            heads=self.heads,
            ahead=self.ahead,
            streams=streams,
        )
        return partial(
            open_client,
            destination,
            draft_folder(self.draft),
            settings,
            fallbacks[self.drafting],
            copies=self.copy,
            threads=self.threads,
        )


@shared_options()
def chat(
    call: Call,
    edge: EdgeOptions,
    prompt: Annotated[
        str | None, typer.Argument(help="Answer this and end; so does what is piped in. Without: a chat.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="Temperature; 0: the likeliest token.")] = 0.0,
    top_p: TopPOption = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, for the same answer again.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 256,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
) -> Answer | None:
    """Chat with a verify-server's model; draft on this machine.

    Answers go to stdout, figures to stderr. Ctrl-C stops an answer, and at the prompt ends the chat; /new
    begins another conversation. A model without a chat template continues texts.
    """
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if call.as_json and prompt is None:
        raise UsageError("--json is for one answer", hint=f"echo Hello | {with_options({})}")
    make = edge.client_maker(streams=1)
    from specops.edge.conversation import Conversation
    from specops.engine.request import Sampling

    sampling = Sampling(temperature=temperature, top_p=top_p, seed=seed, max_tokens=max_tokens)
    with closing(make()) as engine:
        conversation = Conversation(engine.tokenizer, system)
        if not conversation.has_template and not call.quiet:
            _note(f"{engine.model} has no chat template: it continues the text that it is given")
        if prompt is None:
            _talk(engine, conversation, sampling, quiet=call.quiet)
            return None
        text, reason, figures = _answer(engine, conversation, prompt, sampling, show=not call.as_json)
    if not call.as_json and not call.quiet:
        _note(_line(figures))
    return Answer(ChatRecord(text=text, finish_reason=reason, **_numbers(figures)))


def _talk(engine: EdgeEngine, conversation: Conversation, sampling: Sampling, *, quiet: bool) -> None:
    import readline  # noqa: F401  # `input` edits and remembers lines through it

    while True:
        try:
            question = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if question.strip() == "/new":
            conversation.forget()
        elif question.strip():
            try:
                _, _, figures = _answer(engine, conversation, question, sampling, show=True)
            except SpecopsError as error:  # of this answer; the next may do
                print_error(error)
                continue
            if not quiet:
                _note(_line(figures))


def _answer(
    engine: EdgeEngine, conversation: Conversation, question: str, sampling: Sampling, *, show: bool
) -> tuple[str, str, ConversationFigures]:
    """Return the text, why it ended, and what it took."""
    from specops.edge.conversation import ConversationFigures

    tokens, text, reason = 0, "", "cancelled"
    before, started = copy_of(engine.own), perf_counter()
    request = engine.submit(conversation.ask(question), sampling)
    try:
        with _interruptible() as interrupted:
            running = True
            while running and not interrupted:
                for emission in engine.step():
                    if emission.error is not None:
                        raise EndpointError(emission.error)
                    tokens += len(emission.tokens)
                    text += emission.text
                    if show:
                        sys.stdout.write(emission.text)
                        sys.stdout.flush()
                    if emission.finish_reason is not None:
                        reason, running = emission.finish_reason, False
    finally:
        engine.cancel(request)
        if show:
            print(flush=True)
    conversation.answered(question, text)
    return text, reason, ConversationFigures.between(before, engine.own, tokens, perf_counter() - started)


@contextmanager
def _interruptible() -> Iterator[list[None]]:
    """A list that has something in it after Ctrl-C; a second one is as ever."""
    pressed: list[None] = []

    def press(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(None)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class ChatFigures(TypedDict):
    tokens: int
    seconds: float
    tokens_per_second: float | None
    tokens_per_verification: float | None
    hit_rate: float | None
    ahead_rate: float | None
    rtt_ms: float | None


class ChatRecord(ChatFigures):
    text: str
    finish_reason: str | None


def _numbers(figures: ConversationFigures) -> ChatFigures:
    return {
        "tokens": figures.tokens,
        "seconds": figures.seconds,
        "tokens_per_second": figures.rate,
        "tokens_per_verification": figures.per_verification,
        "hit_rate": figures.hit_rate,
        "ahead_rate": figures.ahead_rate,
        "rtt_ms": None if figures.rtt_s is None else figures.rtt_s * 1e3,
    }


def _line(figures: ConversationFigures) -> str:
    parts = [f"{figures.tokens} tokens"]
    if figures.rate is not None:
        parts.append(f"{figures.rate:.1f} a second")
    if figures.per_verification is not None:
        parts.append(f"{figures.per_verification:.2f} a verification")
    if figures.hit_rate is not None:
        parts.append(f"{figures.hit_rate:.0%} guessed ahead")
    if figures.ahead_rate:
        parts.append(f"{figures.ahead_rate:.0%} sent ahead")
    if figures.rtt_s is not None:
        parts.append(f"round trip {figures.rtt_s * 1e3:.1f} ms")
    return ", ".join(parts)


def _note(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(text, style="dim")


@shared_options()
def edge_serve(
    call: Call,
    edge: EdgeOptions,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Sequences that run at the same time, over one connection.")
    ] = 4,
    max_queue: MaxQueueOption = 256,
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name for clients; default: the server's name of it.")
    ] = None,
    grace: GraceOption = 30.0,
) -> None:
    """Serve an OpenAI API here that drafts for a verify-server.

    The API and the metrics are those of `specops serve`, with specops_edge_* beside them. SPECOPS_EDGE_TOKEN
    is shown to the verify-server; where SPECOPS_API_KEY is set, clients must send it. Answers that were
    begun outlive a break of the connection of up to 30 seconds; after 10 without one, new requests get 503.
    """
    make = edge.client_maker(streams=max_batch)
    with extra("edge", "start the server"):
        from specops.edge.client_metrics import edge_series
        from specops.engine.text import load_tokenizer
        from specops.serve.admission import bind
        from specops.serve.engine_worker import in_process
        from specops.serve.server import ServeSettings, serve_engine

    def announce(url: str) -> None:
        value = Serving(base_url=f"{url}/v1", model=settings.model)
        call.announce(value, f"serving {settings.model} on {url} (verified at {edge.server})")

    log_to_stderr(quiet=call.quiet)
    with bind(host, port) as bound, in_process(make, [bound]) as worker:
        settings = ServeSettings(
            model=served_model_name or worker.ready.model,
            capacity=max_batch + max_queue,
            speculative=True,
            api_key=os.environ.get(API_KEY) or None,
            grace=grace,
            extra_series=edge_series,
        )
        serve_engine([worker], load_tokenizer(draft_folder(edge.draft)), settings, bound, announce)
