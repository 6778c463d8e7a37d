"""A command of the user's own: which engine it starts shows only in its words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field

from specops.errors import ConfigError
from specops.hints import in_rollout
from specops.quantities import Seconds
from specops.section import PORT, Command
from specops.serving.argv import Finding
from specops.serving.engine import (
    EVERYWHERE,
    Container,
    Engine,
    Grid,
    Rendering,
    Setting,
    Start,
    Startable,
    by_k,
    check_program,
)

K = "{k}"
NO_K = f"the command of the speculative pool does not say {K}, where a sweep writes the K that it tries"


class CommandPool(Startable):
    """A server that specops starts and stops with your command, such as vLLM or SGLang."""

    engine: Literal["command"]
    command: Command = Field(
        description="Command that serves on 127.0.0.1, without a shell, such "
        "as vllm serve MODEL --port {port}; a sweep fills in {k}."
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the model at the server; default: the first that the server lists.",
    )
    start_timeout_s: Seconds = Field(
        default=600.0, gt=0.0, description="Timeout of the server's start, in seconds."
    )

    def start(self, port: int, name: str) -> Start:
        check_program(shlex.split(self.command)[0])
        return Start(self._words(port), timeout_s=self.start_timeout_s, model=self.model)

    def rendering(self, port: int | str, name: str) -> Rendering:
        return Rendering(self._words(port))

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        words = self._words(port)
        why = f"in a container it must listen on {EVERYWHERE}, and the command does not say so"
        local = [] if any(EVERYWHERE in word for word in words) else [Finding("warning", "command", why)]
        return Container(None, words, downloads=True, findings=local)

    @property
    def programs(self) -> Sequence[str]:
        return (self.command,)

    @property
    def gpus(self) -> None:
        return None

    def variants(self, grid: Grid) -> list[Setting]:
        return by_k(self, grid, partial(_with_k, self))

    @property
    def open_k(self) -> str | None:
        return K if K in self.command else None

    @property
    def fixed_k(self) -> str | None:
        if self.open_k:
            return None
        return f"{NO_K}: write {K} there, sweep, and then write the K that it recommends"

    def _words(self, port: int | str) -> list[str]:
        return [word.replace(PORT, str(port)) for word in shlex.split(self.command)]


def _with_k(pool: CommandPool, k: int, draft: str | None) -> CommandPool:
    if K not in pool.command:
        raise ConfigError(
            NO_K, hint=in_rollout("command", f"write {K} in place of its number of speculative tokens")
        )
    if draft is not None:
        raise ConfigError(
            "invalid sweep.drafts: a sweep cannot put drafts into a command of yours",
            hint=in_rollout("drafts", "remove it, or describe the pool with engine: vllm or engine: sglang"),
        )
    return pool.model_copy(update={"command": pool.command.replace(K, str(k))})


def arm(text: str) -> CommandPool:
    return CommandPool(engine="command", command=text)


def serve(pool: Mapping[str, Any]) -> str:
    return str(pool.get("command"))


ENGINE = Engine(
    name="command",
    title="a command of your own",
    about="a server that a command of yours starts",
    settings=CommandPool,
    opaque=True,
    serve=serve,
    arm=arm,
)
