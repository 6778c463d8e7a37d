"""A request as it is pasted into a shell. The key is named, never written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence

from specops.load.settings import NO_KEY, Endpoint
from specops.phases.canary.asking import Ask

LONGEST = 4000
"""Characters of a body that is written out; a longer one is kept in a file of its own."""

Keep = Callable[[str], str]
"""Keeps a body, and says in which file."""


def pasted(ask: Ask, endpoint: Endpoint, keep: Keep, among: Sequence[Ask] = ()) -> str:
    """A curl of `ask`, behind those of `among`, which go out first and are still under way.

    BASE_URL stands in for the address where it is set: a server that specops started is gone by then.
    """
    base = f'BASE_URL="${{BASE_URL:-{endpoint.base_url}}}"'
    lines = [base, *(f"{_curl(one, endpoint, keep)} > /dev/null &" for one in among)]
    return "\n".join([*lines, _curl(ask, endpoint, keep), *(["wait"] if among else [])])


def _curl(ask: Ask, endpoint: Endpoint, keep: Keep) -> str:
    words = ["curl -sS", f'"$BASE_URL{ask.path}"', "-H 'Content-Type: application/json'"]
    if endpoint.api_key != NO_KEY:
        words.append('-H "Authorization: Bearer $SPECOPS_API_KEY"')
    body = json.dumps(ask.body, ensure_ascii=False)
    words += ["-d", shlex.quote(body if len(body) <= LONGEST else f"@{keep(body)}")]
    return " ".join(words)
