"""Tells a chat of a report: one POST of JSON, with `text` as Slack's, Mattermost's and most others' webhooks
read it, and the figures for programs. The address is a secret: it is in no file and no error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from specops.errors import EndpointError, UsageError
from specops.render.report.document import Document
from specops.results import Result

WEBHOOK = "SPECOPS_REPORT_WEBHOOK"
TIMEOUT_S = 10.0
PAUSES_S = (1.0, 3.0)
"""Before it tries again, where nobody answered, or that may be over in a moment."""

_PASSING = (429, 500, 502, 503, 504)


def body(document: Document, result: Result) -> dict[str, Any]:
    lines = [f"*{document.title}*, {document.subtitle}", f"{document.headline} {document.summary}"]
    lines += [
        f"{number}. {step.told}: `{step.command}`" for number, step in enumerate(document.steps, start=1)
    ]
    return {"text": "\n".join(lines), "specops": {"phase": "report", **result.summary}}


def post(url: str, message: Mapping[str, Any], pauses_s: tuple[float, ...] = PAUSES_S) -> None:
    """Raises UsageError for what is no address, EndpointError where it was not taken."""
    host = _host(url)
    why = ""
    for pause in (*pauses_s, None):
        try:
            # A redirect would be followed with a GET, and the message lost.
            answer = requests.post(url, json=message, timeout=TIMEOUT_S, allow_redirects=False)
        except requests.Timeout:
            why = f"it did not answer within {TIMEOUT_S:g} s"
        except (requests.RequestException, ValueError) as error:  # urllib3's of a name that cannot be one
            why = f"it could not be reached ({type(error).__name__})"
        else:
            if answer.ok and not answer.is_redirect:
                return
            why = f"it answered {answer.status_code}"
            if answer.status_code not in _PASSING:
                break
        if pause is not None:
            time.sleep(pause)
    raise EndpointError(
        f"could not post the report to the webhook at {host}: {why}",
        hint=f"is --post, or {WEBHOOK} in the environment, its whole address?",
    )


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname
    except ValueError:
        pass
    raise UsageError("the webhook is no address", hint=f"--post https://…, or {WEBHOOK} in the environment")
