"""What an answer says that is not the one that was asked for: an error in JSON, or an HTML page."""

from __future__ import annotations

import html
import json
import re
from typing import Any

_TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


def error_message(body: dict[str, Any]) -> str | None:
    """The message of an error object in any of the usual shapes; None where `body` is not an error.

    Known are OpenAI's `{"error": {"message": …}}`, `{"error": "…"}`, vLLM's and SGLang's
    `{"object": "error", "message": …}` and FastAPI's `{"detail": …}`.
    """
    fault = body.get("error")
    if fault:
        return _text(fault)
    if body.get("object") == "error":
        return _text(body)
    if "choices" in body or "usage" in body or not ("detail" in body or "message" in body):
        return None
    return _text(body)


def html_page(text: str) -> str | None:
    """`an HTML page` with its title, where `text` begins as one."""
    if not re.match(r"\s*<(!doctype html|html|head|body)\b", text, re.IGNORECASE):
        return None
    title = _TITLE.search(text)
    return f"an HTML page ({html.unescape(title[2]).strip()})" if title else "an HTML page"


def described(body: bytes) -> str:
    """The cause that the body of a refusal gives: the message of an error, the title of a page, its text."""
    text = body.decode("utf-8", errors="replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    found = error_message(parsed) if isinstance(parsed, dict) else html_page(text)
    return found or text.strip() or "no text"


def _text(fault: Any) -> str:
    if isinstance(fault, dict):
        fault = next((fault[key] for key in ("message", "detail", "msg", "code") if fault.get(key)), fault)
    return fault if isinstance(fault, str) else json.dumps(fault)
