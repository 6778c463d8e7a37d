"""Requests that nobody would send: well formed, nearly so, and not at all. NGINX and `route explain` must
read each of them the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from specops.phases.route.explain import CHAT, COMPLETIONS, Request

_NAMES = (
    *("max_tokens", "max_completion_tokens", "temperature", "stream", "n", "best_of", "min_p", "logit_bias"),
    *("messages", "prompt", "model", "tools", "max_tokens ", "Temperature", ""),
)
_NUMBERS = (
    0,
    1,
    31,
    32,
    63,
    64,
    255,
    256,
    4096,
    -1,
    0.0,
    1.0,
    1.0000001,
    0.5,
    3e2,
    1e308,
    10**400,
    2**53 + 1,
)
_TEXTS = ("", "def f(x):", "say it", "ünïcode 🙂", "\0\x1f\x7f", "```", "a" * 3000, 'quote " and \\ \n')
_RAW = (
    *(b"NaN", b"-Infinity", b"1.", b".5", b"-", b"01", b"-0", b"1e999", b"-1e-999", b"0x10", b"1E+2", b"+1"),
    *(
        b'"\\ud83d\\ude00"',
        b'"\\ud800"',
        b'"\\u12"',
        b'"\\x41"',
        b'"\xff\xfe"',
        b'"\xc3"',
        b'"a\tb"',
        b'"\0"',
    ),
    *(b"tru", b"nul", b"True", b"'a'", b"[1,]", b'{"a":1,}', b"[" * 70 + b"]" * 70, b"{" * 5, b"/**/1"),
)
_INSERTED = (b",", b'"', b"\\", b"\0", b"{", b"]", b"\xff", b"\xef\xbb\xbf", b" ", b"\r\n", b"null", b"1e5")


def made_up(seed: int) -> Iterator[Request]:
    """The same for the same seed, without end."""
    random = Random(seed)
    while True:
        body = _body(random)
        if random.random() < 0.4:
            body = _damaged(random, body)
        path = COMPLETIONS if random.random() < 0.3 else CHAT
        yield Request(body, path=path)


def _body(random: Random) -> bytes:
    members = []
    for _ in range(random.randrange(8)):
        name = json.dumps(random.choice(_NAMES)).encode()
        if random.random() < 0.1:  # the same name by other letters
            name = b'"' + b"".join(b"\\u%04x" % code for code in name[1:-1]) + b'"'
        raw = random.choice(_RAW) if random.random() < 0.1 else _dumped(random, _value(random, 0))
        members.append(name + random.choice((b":", b": ", b"\n:\t")) + raw)
    random.shuffle(members)
    return (
        random.choice((b"", b" ", b"\r\n")) + b"{" + b",".join(members) + b"}" + random.choice((b"", b"\n"))
    )


def _dumped(random: Random, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode(errors="surrogatepass")


def _value(random: Random, depth: int) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: random.choice(_NUMBERS),
        lambda: random.randrange(600),
        lambda: random.choice(_TEXTS),
        lambda: random.choice((True, False, None)),
        lambda: [_value(random, depth + 1) for _ in range(random.randrange(4))],
        lambda: {random.choice(_NAMES): _value(random, depth + 1) for _ in range(random.randrange(3))},
        lambda: [_message(random, depth + 1) for _ in range(random.randrange(4))],
    )
    return random.choice(kinds if depth < 3 else kinds[:4])()


def _message(random: Random, depth: int) -> Any:
    role = random.choice(("user", "user", "assistant", "system", None, 3))
    parts = [
        {"type": random.choice(("text", "image_url", 1)), "text": random.choice(_TEXTS)}
        for _ in range(random.randrange(3))
    ]
    return {
        "role": role,
        "content": random.choice((random.choice(_TEXTS), parts, None, _value(random, depth))),
    }


def _damaged(random: Random, body: bytes) -> bytes:
    at = random.randrange(len(body) + 1)
    match random.randrange(4):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + random.choice(_INSERTED) + body[at:]
        case 2:
            return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
        case _:
            return body[:at] + body[at + random.randrange(1, 9) :]
