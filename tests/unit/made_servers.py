"""Servers to deploy, as tests of what is rendered ask for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from specops.config import Deploy
from specops.render.server import Server

WORDS = ("vllm", "serve", "org/model", "--host", "0.0.0.0", "--port", "8000")


def server(pool: str = "standard", **fields: Any) -> Server:
    known: dict[str, Any] = {
        "rollout": "My.Rollout_1",
        "pool": pool,
        "engine": "vllm",
        "image": "vllm/vllm-openai:v0.33.0",
        "command": WORDS,
        "environment": {},
        "replicas": 1,
        "gpus": 1,
        "downloads": True,
        "drains": True,
    }
    return Server(**known | fields)


def deploy(**fields: Any) -> Deploy:
    return Deploy.model_validate(fields)


# What a command line or a variable may hold: anything printable, what YAML readers take for something else,
# what Compose, Kubernetes and a shell would put something in place of.
TRICKY = (
    "1e3",
    "0o7",
    "0x1F",
    "1_000",
    "12:30:45",
    "yes",
    "Off",
    "null",
    "~",
    "=",
    "<<",
    "",
    " ",
    "- a",
    "a: b",
)
DOLLARS = (
    "$HOME",
    "$$",
    "${HOME:-x}",
    "$(HOME)",
    "$$(HOME)",
    "a$",
    '{"a": "b\\u00e9"}',
    "it's",
    '"',
    "\\",
    "#",
)
words = st.one_of(
    st.sampled_from(TRICKY + DOLLARS),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=20),
)
