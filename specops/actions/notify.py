"""A message after a change: one POST of JSON with `text`, as the webhooks of Slack, Mattermost and most other
chats take it, and the figures for programs.

The address of such a webhook is a secret, so the environment has it; no file, journal or error shows it.
"""

from __future__ import annotations

import os
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from specops.actions.action import Action, Message, Notification
from specops.actions.http_client import ask
from specops.errors import EnvironmentFailure
from specops.quantities import Seconds

WEBHOOK = "SPECOPS_GUARD_WEBHOOK"


class NotifyAction(Action):
    """A message to a chat after a change. It switches nothing, and a failure delays nothing."""

    kind: Literal["notify"]
    switches: ClassVar[bool] = False
    url_variable: str = Field(
        default=WEBHOOK,
        pattern=r"^[A-Z][A-Z0-9_]*$",
        description="Environment variable that holds the webhook's URL, which is a secret.",
    )
    timeout_s: Seconds = Field(
        default=3.0, gt=0.0, le=30.0, description="Timeout of the message, in seconds."
    )

    def notifications(self) -> list[Notification]:
        return [Webhook(self)]


class Webhook(Notification):
    def __init__(self, action: NotifyAction) -> None:
        self.name = f"webhook {action.url_variable}"
        self._action = action

    def send(self, message: Message) -> None:
        variable = self._action.url_variable
        url = os.environ.get(variable, "").strip()
        if not _is_http(url):
            raise EnvironmentFailure(
                f"could not notify {self.name}: {variable} is {'not an http address' if url else 'not set'}",
                hint=f"export {variable}=https://hooks.slack.com/services/…",
            )
        ask(
            f"notify {self.name}",
            "POST",
            url,
            body=body(message),
            timeout_s=self._action.timeout_s,
            url_label=f"the address in {variable}",
        )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def body(message: Message) -> dict[str, object]:
    state = "" if message.confirmed else ", not confirmed"
    return {
        "text": f"*{message.rollout}*: {message.percent}% speculative{state}. {message.text}",
        "specops": {
            "rollout": message.rollout,
            "percent": message.percent,
            "confirmed": message.confirmed,
        },
    }
