"""`specops edge chat`: a chat in the terminal, drafted here and verified elsewhere."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import copy as copy_of
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.edge_options import (
    SERVER,
    AheadOption,
    BeamsOption,
    CopyFlag,
    DepthOption,
    DraftingOption,
    DraftOption,
    HeadsOption,
    InsecureFlag,
    NodesOption,
    ServerOption,
    TlsCaOption,
    client_maker,
)
from specops.cli.load_options import TopPOption
from specops.cli.output import DebugFlag, JsonFlag, QuietFlag, print_error, print_json
from specops.cli.serve_options import ThreadsOption
from specops.edge.settings import DEFAULT
from specops.errors import EndpointError, SpecopsError, UsageError

if TYPE_CHECKING:
    from specops.edge.client import EdgeEngine
    from specops.edge.conversation import Conversation, Figures
    from specops.engine.request import Sampling


def chat(
    server: ServerOption = SERVER,
    prompt: Annotated[
        str | None, typer.Argument(help="Answer this and end; so does what is piped in. Without: a chat.")
    ] = None,
    draft: DraftOption = None,
    copy: CopyFlag = False,
    tls_ca: TlsCaOption = None,
    insecure: InsecureFlag = False,
    drafting: DraftingOption = "auto",
    nodes: NodesOption = DEFAULT.nodes,
    beams: BeamsOption = DEFAULT.beams,
    depth: DepthOption = "adaptive",
    heads: HeadsOption = DEFAULT.heads,
    ahead: AheadOption = DEFAULT.ahead,
    temperature: Annotated[float, typer.Option(min=0, help="0: the likeliest token each time.")] = 0.0,
    top_p: TopPOption = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, help="For the same answer again.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 256,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Chat with a verify-server's model; draft on this machine.

    Answers go to stdout, figures to stderr. Ctrl-C stops an answer, and at the prompt ends the chat; /new
    begins another conversation. A model without a chat template continues texts.
    """
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if json and prompt is None:
        raise UsageError("--json is for one answer", hint="give the prompt as an argument, or pipe it in")
    make = client_maker(
        server=server,
        draft=draft,
        copy=copy,
        tls_ca=tls_ca,
        insecure=insecure,
        drafting=drafting,
        nodes=nodes,
        beams=beams,
        depth=depth,
        heads=heads,
        ahead=ahead,
        streams=1,
        threads=threads,
    )
    from specops.edge.conversation import Conversation
    from specops.engine.request import Sampling

    sampling = Sampling(temperature=temperature, top_p=top_p, seed=seed, max_tokens=max_tokens)
    with closing(make()) as engine:
        conversation = Conversation(engine.tokenizer, system)
        if not conversation.has_template and not quiet:
            _note(f"{engine.model} has no chat template: it continues the text that it is given")
        if prompt is None:
            _talk(engine, conversation, sampling, quiet=quiet)
            return
        text, reason, figures = _answer(engine, conversation, prompt, sampling, show=not json)
    if json:
        print_json({"text": text, "finish_reason": reason, **_numbers(figures)})
    elif not quiet:
        _note(_line(figures))


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
) -> tuple[str, str, Figures]:
    """Text, why it ended, and what it took."""
    from specops.edge.conversation import Figures

    tokens, text, reason = 0, "", "cancelled"
    before, started = copy_of(engine.own), perf_counter()
    wanted = engine.submit(conversation.ask(question), sampling)
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
        engine.cancel(wanted)
        if show:
            print(flush=True)
    conversation.answered(question, text)
    return text, reason, Figures.between(before, engine.own, tokens, perf_counter() - started)


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


def _numbers(figures: Figures) -> dict[str, float | int | None]:
    return {
        "tokens": figures.tokens,
        "seconds": figures.seconds,
        "tokens_per_second": figures.rate,
        "tokens_per_verification": figures.per_verification,
        "hit_rate": figures.hit_rate,
        "ahead_rate": figures.ahead_rate,
        "rtt_ms": None if figures.rtt_s is None else figures.rtt_s * 1e3,
    }


def _line(figures: Figures) -> str:
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
