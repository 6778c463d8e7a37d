"""A server as it is deployed: what Compose files and manifests are made from. And how YAML is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specops import __version__

CACHE = "/cache"
"""Where downloaded models are kept in a container, by HF_HOME."""


@dataclass(frozen=True)
class Server:
    """One of a pool's servers, all alike. The container that it runs in listens on all its addresses."""

    rollout: str
    pool: str
    """standard or speculative"""

    engine: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    replicas: int
    gpus: int
    downloads: bool
    """It may fetch models, which are then kept at CACHE."""

    drains: bool
    """It finishes its running requests after SIGTERM; otherwise they are given their time before it."""

    @property
    def name(self) -> str:
        return f"{dns_name(self.rollout)}-{self.pool}"


def dns_name(text: str) -> str:
    """`text` as a part of a name in Kubernetes, Compose and DNS: the same text gives the same name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"r-{name}".rstrip("-")


def label(text: str) -> str:
    """`text` as a label's value: as it is where Kubernetes takes it."""
    return text if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text) else dns_name(text)


def health_question(port: int, timeout_s: int) -> list[str]:
    """A command for inside the container that fails unless /health is good; python is in every image."""
    address = f"http://127.0.0.1:{port}/health"
    return ["python3", "-c", f"import urllib.request as r; r.urlopen('{address}', timeout={timeout_s})"]


def header(rollout: str, *notes: str) -> str:
    made = f"Made by specops {__version__} from the rollout {rollout}: change its file and render again."
    return "".join(f"# {line}\n" for line in (made, *notes))


def to_yaml(*documents: dict[str, Any]) -> str:
    """YAML, keys in the order they were put in. Strings that any YAML version may take for something else
    are quoted: PyYAML knows 1.1, and Go's readers of it take 1e3 for a number and 0o7 too."""
    return "---\n".join(
        yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
        for each in documents
    )


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)  # lists are indented below their key

    def ignore_aliases(self, data: Any) -> bool:
        return True


_PLAIN = re.compile(r"(--?[A-Za-z]|[A-Za-z/])([A-Za-z0-9_./:@-]*[A-Za-z0-9_./@-])?")


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # A JSON word reads better in single quotes, which know no escapes.
    style = None if _PLAIN.fullmatch(text) else "'" if '"' in text and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
