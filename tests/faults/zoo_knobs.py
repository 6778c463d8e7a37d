"""What the zoo's servers can be: knobs of speed, answers, chunks and failures, and their form as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Body = dict[str, Any]

FailureKind = Literal[
    "http_500",
    "http_503",
    "http_429",
    "http_429_later",  # with Retry-After
    "http_429_until",  # with Retry-After as a date, which is the next second
    "reset",  # the connection ends before the first byte
    "cut",  # the connection ends in the middle of the answer
    "abort",  # finish_reason abort after a quarter of the tokens
    "finish_error",  # the same with finish_reason error
    "error_object",  # {"object": "error"} in the stream, then [DONE]
    "error_event",  # {"error": {...}} in the stream, then [DONE]
    "error_json",  # {"object": "error"} as JSON with status 200, no stream
    "html",  # a page with status 200, as a proxy sends it
    "empty",  # a whole answer without text
    "unended",  # the answer ends at half with [DONE], and no finish_reason or usage
    "silent_end",  # the same without [DONE]
    "filtered",  # finish_reason content_filter at half of the tokens
    "stump",  # a tenth of the answer, with finish_reason stop
    "hang",  # silence for `ms` before the first byte
    "stall",  # silence for `ms` in the middle of the answer
]


Bad = Literal["html", "401", "404", "429", "no_models", "loading", "http2"]


@dataclass(frozen=True)
class Fault:
    """A failure of a share of the requests that meet all its conditions."""

    kind: FailureKind
    share: float = 1.0
    ms: float = 0.0
    above: int = 0
    """Only while more than this many requests are in flight."""

    classes: tuple[str, ...] = ()
    """Only prompts of these classes; empty means all."""

    after: int = 3
    """The first requests, which only ask what the server is, are answered well."""

    in_a_row: int = 0
    """Only from this request on after those of another server."""

    until: int = 0
    """Only up to this request after those of another server; 0: no end."""

    last: int = 0
    """Only up to this request of the server; 0: no end."""

    sampled: bool = False
    """Only requests with a temperature above 0."""

    mixed: bool = False
    """Only greedy requests, while a sampled request is in flight when their first token is due."""


@dataclass(frozen=True)
class Server:
    """One server's knobs. Times in milliseconds, shares from 0 to 1."""

    seed: int = 0

    # Speed
    ttft_ms: float = 10.0
    token_ms: float = 6.5
    unpaused_ttft_ms: float = 0.0
    """The first token of a request that comes within 20 ms of another's end; 0: as usual."""

    class_factors: dict[str, float] = field(default_factory=dict)
    """By class: how many times as long its requests take."""

    loaded_factor: float = 1.0
    loaded_above: int = 1
    """More than `loaded_above` requests in flight: each takes `loaded_factor` times as long."""

    drift: tuple[tuple[int, float], ...] = ()
    """(requests, factor): between two points the factor is interpolated; beyond the ends it stays."""

    drift_s: tuple[tuple[float, float], ...] = ()
    """The same by seconds since the first request, in steps: each factor counts from its time on."""

    outage_s: tuple[float, float] = (0.0, 0.0)
    """(every, for): so often, nothing is served for so long."""

    wake: tuple[int, float] = (0, 1.0)
    """(requests, factor): so many requests after those of another server take `factor` times as long."""

    alternate: float = 1.0
    """Every second request takes so many times as long."""

    burden_ms: float = 0.0
    """Each answer leaves so much work behind, which delays the next requests of every server."""

    odd_connections: float = 1.0
    """Requests on every second connection take so many times as long, and those on the others the inverse."""

    connection_ms: float = 0.0
    """The first request on a connection takes so much longer."""

    spacing_ms: float = 0.0
    """A limit that delays: a request begins so long after the one before at the earliest."""

    per_second: int = 0
    """More requests than these in a second are refused with 429 and Retry-After 0.1; 0: none."""

    burst_s: float = 0.0
    burst_share: float = 0.0
    """Every `burst_s` seconds the speed is drawn again: 1 or 1 + `burst_share` times as long."""

    visit_sd: float = 0.0
    visit_requests: int = 8
    """Log-normal noise common to a visit. A visit ends when another server is sent a request, and after
    `visit_requests` requests."""

    lasting_sd: float = 0.0
    lasting_phi: float = 0.97
    """Log-normal noise of the server's own that goes over from request to request, by this correlation."""

    from_turn: tuple[int, float] = (0, 1.0)
    """(turn, factor): from this turn of a conversation on, requests take `factor` times as long; 0: none."""

    prefill_ms: float = 0.0
    """The first token comes so much later for each message of the prompt that is not in the cache."""

    prefix_cache: bool = False
    """It has the beginnings of prompts that it was sent in its cache, and says so in its usage."""

    cache_usage: bool = True
    """Whether its usage says so; its metrics have counters of hits either way."""

    hit_factor: float = 1.0
    """A request of which a part is in the cache takes this many times as long."""

    other_prefix: bool = False
    """Of a prompt that is in its cache in part, it answers another one: the cache returned what is not its
    beginning."""

    request_sd: float = 0.0
    """Log-normal noise of each request alone."""

    repeat_factor: float = 1.0
    """A prompt that was answered before takes this many times as long: below 1 it comes from a cache."""

    ignores_nonce: bool = False
    """Such a cache knows a prompt whatever nonce is in front of it."""

    shares_cache: bool = False
    """What one of these servers has answered is in the cache of all of them."""

    # Answers
    tokens: tuple[int, int] = (6, 12)
    """Fewest and most tokens of an answer; the prompt decides."""

    length: float = 1.0
    length_classes: tuple[str, ...] = ()
    """Answers end at this share of their tokens; of these classes only, where any are named."""

    length_sd: float = 0.0
    """Log-normal spread of the length of each answer."""

    sampled_sd: float = 0.15
    """The same, for requests with a temperature above 0; their words are random too."""

    sampled_cut: float = 0.0
    """Share of the sampled answers that end at 40%."""

    gibberish: float = 0.0
    """Share of the sampled answers that are random letters, and as long."""

    loops: bool = False
    """Its answers to sampled requests repeat two words, which the prompt decides."""

    cap: int = 0
    """A limit of its own on the tokens of an answer, which ends with finish_reason length; 0: none."""

    prompt_tokens: int = 40
    """By its own count of any prompt, for each of its messages."""

    loses_history: bool = False
    """It answers as if the last message were the whole prompt."""

    cut_prompts: tuple[str, ...] = ()
    """Of prompts of these classes it reads and counts the last half alone; answers are those to another
    prompt."""

    ignores_temperature: float = 0.0
    """Share of the sampled requests whose answers are the greedy ones."""

    other_language: bool = False
    """Answers are in words of one character, which are as many tokens."""

    unsteady: float = 0.0
    """Share of greedy answers that part from the prompt's own answer at a random token."""

    other_model: bool = False
    """Its answers to greedy requests have other words, and as many of them."""

    random_greedy: bool = False
    """Answers to greedy requests are random from the first word on."""

    refuses_greedy: bool = False
    """Requests at temperature 0 get status 400."""

    garble_share: float = 0.0
    garble_above: int = 0
    garble_mixed: bool = False
    garble_repeats: bool = False
    """Share of the prompts whose greedy answers change: while more than `garble_above` requests are in
    flight, beside a sampled request, or when the prompt comes again."""

    garbled_prompts: tuple[int, ...] = ()
    """Greedy answers to the prompts of these numbers change after a third."""

    no_spaces: bool = False
    """Answers are sent without white space."""

    padding: float = 0.0
    """Share of further tokens that are white space, at the end of the answer."""

    stock: float = 0.0
    """Share of the prompts that get one answer of 9 tokens, to the letter."""

    textless: bool = False
    """Tokens are counted, and none has text."""

    reasoning: float = 0.0
    """Share of each answer, from its beginning, that is sent as reasoning_content."""

    field: Literal["content", "refusal", "tool_calls"] = "content"
    """In which the rest is sent."""

    logprobs: bool = False
    """A request that does not stream gets log-probabilities, which say that every token is sure."""

    # Chunks
    first_chunk: int = 1
    chunk: int = 1
    linger_ms: float = 0.0
    """The stream ends so long after its last text."""

    finish_apart: bool = False
    """The finish reason comes in a chunk of its own at the end of the stream."""

    usage: Literal["own", "last_text", "null", "zero", "none", "every", "total"] = "own"
    """Where completion_tokens is sent: in a chunk of its own, with the last text, as null, as 0, never, as a
    running total with every chunk, or as the whole answer's with every chunk."""

    buffered: bool = False
    """A proxy holds the answer back until it is whole."""

    flush_ms: float = 0.0
    """A proxy sends on what it has every so many milliseconds of an answer; 0: at once."""

    byte_order_mark: bool = False
    """Before the stream."""

    crlf: bool = False
    """Lines end with CR LF, and each event has an id."""

    copies: int = 1
    """Each chunk is sent so many times, as by a broken proxy."""

    comments: int = 0
    """So many comments, which keep a connection alive, are sent before each chunk."""

    no_finish: bool = False
    """No chunk has a finish reason."""

    role_first: bool = False
    """A chunk with the role and no text is sent as soon as the request is there."""

    usage_factor: float = 1.0
    """completion_tokens is this many times the number of tokens."""

    # Failures and connections
    faults: tuple[Fault, ...] = ()
    refused_prompts: tuple[int, ...] = ()
    """Prompts of these numbers get status 400."""

    closing_after: int = 0
    """A connection is closed after so many answers, without notice; 0: none is."""

    closing: Literal["", "fin", "race"] = ""
    """fin: closes each connection after a stream that advertised keep-alive. race: drops the second request
    on a connection before its first byte, as a request meets a server that has just closed."""

    # What it says of itself
    model: str = "zoo"
    metrics: bool = False
    start_s: float = 0.0
    """Seconds until it listens, where it is started by itself."""

    started: float | None = None
    """process_start_time_seconds; by default every server has its own."""

    speculates: bool = False
    """Its counters of drafts grow with each answer."""

    accepts: bool = True
    """Two of three drafted tokens are accepted by those counters; else none."""

    bad: Literal["", Bad] = ""
    """It answers nothing else. http2: it speaks HTTP/2 alone."""


def server_of(fields_: Body) -> Server:
    """The knobs from JSON; TypeError for an unknown one."""
    known = {one.name for one in fields(Server)}
    if unknown := fields_.keys() - known:
        raise TypeError(f"no such knobs: {unknown}")
    found = dict(fields_)
    for name, value in found.items():
        if isinstance(value, list) and name != "faults":
            found[name] = tuple(tuple(one) if isinstance(one, list) else one for one in value)
    found["faults"] = tuple(
        Fault(**{**fault, "classes": tuple(fault.get("classes", ()))}) for fault in found.get("faults", ())
    )
    return Server(**found)


def knobs_of(server: Server) -> Body:
    """As JSON: what `server_of` reads."""
    return asdict(server)
