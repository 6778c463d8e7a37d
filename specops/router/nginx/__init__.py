"""NGINX as the router: its settings, and what it answers.

configuration.py  the files that it runs from, from the templates in nginx/
judge.py          decide.lua, the file that NGINX runs, in Python
listener.py       its admin listener: the switch and the counters
program.py        the program: where it is, what it refuses, how its files are moved to loopback
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from pwd import getpwuid
from typing import ClassVar, Self

from pydantic import Field

from specops.assets import asset
from specops.quantities import Count
from specops.router.nginx import program
from specops.router.nginx.configuration import (
    CONF,
    LUA,
    NATIVE_LIMITS,
    RULES,
    SWITCH,
    literal,
    native_conf,
    native_switch,
    nginx_conf,
    rules_lua,
)
from specops.router.nginx.judge import LuaJudge
from specops.router.nginx.listener import NginxListener
from specops.router.protocol import Deployment, Router, StoredRules
from specops.router.settings import Name


class Nginx(Router):
    """Settings of NGINX."""

    name: ClassVar[str] = "nginx"
    title: ClassVar[str] = "NGINX"
    main: ClassVar[str] = CONF
    folders: ClassVar[Sequence[str]] = ("temp",)
    edited: ClassVar[Sequence[str]] = (SWITCH,)
    generated: ClassVar[str] = "lua/specops/*.lua"

    workers: Count | None = Field(
        default=None, ge=1, description="Number of worker processes; default: one per core."
    )
    user: Name | None = Field(
        default=None, description="User of the worker processes, where root starts NGINX; default: nobody."
    )
    modules: str | None = Field(
        default="/usr/lib/nginx/modules",
        pattern=r"^/[^\s;{}'\"\\]*$",
        description="Folder of NGINX's Lua module; null: it is built in, as in OpenResty.",
    )
    lua: bool = Field(
        default=True,
        description="Decide in Lua, with each request's body; false: by headers and paths only, "
        "without the Lua module.",
    )

    @property
    def limits(self) -> Sequence[str]:
        return () if self.lua else NATIVE_LIMITS

    @property
    def untestable(self) -> str | None:
        return None if self.lua else "NGINX without Lua does not decide by what is in a request's body"

    def for_trial(self) -> Self:
        # The folder belongs to nobody else, so workers run as this user.
        user = getpwuid(os.geteuid()).pw_name if os.geteuid() == 0 else None
        return self.model_copy(update={"workers": 1, "user": user, "lua": True})

    def render(self, deployment: Deployment) -> dict[str, str]:
        if not self.lua:
            switch = native_switch(deployment.route.speculative_percent)
            return {CONF: native_conf(deployment, self.workers, self.user), SWITCH: switch}
        lua = {f"lua/specops/{name}.lua": asset("nginx", "lua", "specops", f"{name}.lua") for name in LUA}
        return {
            CONF: nginx_conf(deployment, self.workers, self.user, self.modules),
            RULES: rules_lua(deployment),
            **{name: path.read_text(encoding="utf-8") for name, path in lua.items()},
        }

    def start_command(self, folder: Path) -> str:
        return f"nginx -p {shlex.quote(str(folder))} -c {CONF}"

    def start(self, program: str, folder: Path) -> list[str]:
        return [program, "-p", str(folder), "-c", CONF, "-e", "stderr", "-g", "daemon off;"]

    survey = staticmethod(program.survey)
    find_program = staticmethod(program.find)
    refusal = staticmethod(program.refusal)
    read_files = staticmethod(program.read_files)
    moved = staticmethod(program.moved)
    listener = staticmethod(NginxListener)

    def stored_rules(self, files: Mapping[str, str]) -> StoredRules:
        return StoredRules(LuaJudge(files[RULES]).table, program.trusted_networks(files[CONF]))

    def judge(self, rules: StoredRules) -> LuaJudge:
        return LuaJudge(f"return {literal(rules.table)}", rules.trusted)


ROUTER = Nginx
