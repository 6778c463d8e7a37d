"""Server-sent events: how a streamed answer goes over the wire."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from specops.serve.generation import Generation
from specops.serve.refusal import FAULT, Refusal
from specops.serve.responses import Answer

log = logging.getLogger(__name__)

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # NGINX would hold the chunks back
}
_DONE = b"data: [DONE]\n\n"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


async def send_stream(
    request: web.Request, generation: Generation, answer: Answer, *, include_usage: bool
) -> web.StreamResponse:
    """Send `answer` as it grows; everything that is there at one time goes out in one write.

    What goes wrong before the first output is raised as a Refusal, with a status of its own. Later the
    status has been sent, so the error travels as an event, as vLLM sends it.
    """
    batch = await generation.next()
    response = web.StreamResponse(headers=_HEADERS)
    await response.prepare(request)
    payload = _events(answer.opening())
    try:
        while True:
            payload += _events(answer.chunk(index, emission) for index, emission in batch)
            if generation.finished:
                break
            await response.write(payload)
            batch = await generation.next()
            payload = b""
        if include_usage:
            payload += _events([answer.usage_chunk()])
    except Refusal as refusal:
        payload = _events([refusal.body()])
    except ConnectionError:  # the client has gone
        raise
    except Exception:
        log.exception("a stream of %s broke off", request.path)
        payload = _events([FAULT.body()])
    await response.write_eof(payload + _DONE)
    return response


def _events(objects: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(b"data: %b\n\n" % _encode(item).encode() for item in objects)
