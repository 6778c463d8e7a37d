"""A deployed server, the input of scripts, Compose files and manifests; and how YAML is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from specops import __version__

CACHE = "/cache"
"""The folder of downloaded models in a container (HF_HOME)."""


@dataclass(frozen=True)
class Server:
    """A server of a pool; all servers of a pool are alike. In its container it listens on all addresses."""

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
    """Whether it may download models, into CACHE."""

    drains: bool
    """Whether it finishes running requests after SIGTERM. Otherwise they get their time before SIGTERM."""

    @property
    def name(self) -> str:
        return f"{dns_name(self.rollout)}-{self.pool}"


def dns_name(text: str) -> str:
    """`text` as a part of a name in Kubernetes, Compose and DNS. The same text gives the same name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"r-{name}".rstrip("-")


def label(text: str) -> str:
    """`text` as the value of a label: unchanged if Kubernetes accepts it, otherwise its `dns_name`."""
    return text if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text) else dns_name(text)


def health_question(port: int, timeout_s: int) -> list[str]:
    """A command that fails unless /health is good. It runs in the container; every image has Python."""
    address = f"http://127.0.0.1:{port}/health"
    return ["python3", "-c", f"import urllib.request as r; r.urlopen('{address}', timeout={timeout_s})"]


def header(rollout: str, *notes: str) -> str:
    made = f"Made by specops {__version__} from the rollout {rollout}: change its file and render again."
    return "".join(f"# {line}\n" for line in (made, *notes))


def to_yaml(*documents: dict[str, Any]) -> str:
    """YAML with keys in the given order. Strings that any YAML version may read as another type are quoted:
    PyYAML knows 1.1, and Go's readers also take 1e3 and 0o7 for numbers."""
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


def script(
    command: Sequence[str], environment: Mapping[str, str], secrets: Iterable[str], *, rollout: str, pool: str
) -> str:
    """A Bash script that starts one server on this machine, with `exec`. `secrets` are names of variables
    that must be set; the script does not contain their values."""
    lines = ["#!/usr/bin/env bash", header(rollout, f"Starts a server of the {pool} pool.").rstrip()]
    lines += ["set -euo pipefail", ""]
    lines += [f': "${{{name}:?set it first; this script does not contain it}}"' for name in sorted(secrets)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    return "\n".join([*lines, "exec " + " \\\n  ".join(_lines(command)), ""])


def _lines(command: Sequence[str]) -> list[str]:
    """The lines of a command: the program and its first words, then one flag with its value a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines if line]
