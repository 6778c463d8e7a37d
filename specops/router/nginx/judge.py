"""decide.lua, the file that NGINX runs, run by LuaJIT in this process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from specops.assets import asset
from specops.errors import UsageError
from specops.hints import ROLLOUT
from specops.router.protocol import REQUEST_ID, Decision, Request, may_choose


class LuaJudge:
    """decide.lua with the rules of one rollout. It is not thread-safe."""

    def __init__(self, rules_lua: str, trusted: Sequence[str] = ()) -> None:
        """`rules_lua` is the text of the file; `trusted` are the networks in NGINX's configuration. Raises
        UsageError where the text does not return a table."""
        # Imported here only, since it loads a compiled runtime. NGINX's Lua module is built with 2.1.
        from lupa.luajit21 import LuaError, LuaRuntime

        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        package = self._lua.globals()[b"package"]
        package[b"path"] = str(asset("nginx", "lua")).encode() + b"/?.lua"
        self._decide: Callable[..., Any] = self._lua.execute(b'return require("specops.decide").decide')
        try:
            self._rules = self._lua.execute(rules_lua.encode())
        except LuaError as error:
            raise _damaged(str(error).partition("\n")[0]) from None
        self._trusted = trusted
        self._request = Request(b"")
        # Made once and reused: lupa finds a callable that it has passed before by its address in memory,
        # where another may lie once the first is gone.
        self._callbacks = {b"header": self._header, b"address": self._address, b"matches": _matches}

    @property
    def table(self) -> Mapping[str, Any]:
        """The rules as Python has them. Raises UsageError where they are not a table of names."""
        table = _plain(self._rules)
        if not isinstance(table, Mapping):
            raise _damaged("it returns no table of names")
        return table

    def decide(self, request: Request, *, in_flight: float = 0, percent: float = 100.0) -> Decision:
        self._request = request
        question = self._lua.table()
        question[b"method"] = request.method.encode()
        question[b"path"] = request.path.partition("?")[0].encode()
        if (request_id := request.headers.get(REQUEST_ID)) is not None:
            question[b"id"] = request_id.encode()
        question[b"trusted"] = may_choose(request.address, self._trusted)
        question[b"body"] = request.body
        for name, callback in self._callbacks.items():
            question[name] = callback
        state = self._lua.table()
        state[b"percent"], state[b"in_flight"] = percent, in_flight
        state[b"now"] = time.time()
        decision = {
            key.decode(): value.decode() if isinstance(value, bytes) else value
            for key, value in self._decide(question, self._rules, state).items()
        }
        return cast(Decision, decision)

    def _header(self, name: bytes) -> bytes | None:
        value = self._request.headers.get(name.decode())
        return None if value is None else value.encode()

    def _address(self) -> bytes:
        return self._request.address.encode()


def _damaged(why: str) -> UsageError:
    return UsageError(f"rules.lua is damaged: {why}", hint=f"specops route render {ROLLOUT}")


def _plain(value: Any) -> Any:
    """A Lua value in Python; a table with a first element becomes a list."""
    if isinstance(value, bytes):
        return value.decode()
    if not hasattr(value, "items"):
        return value
    pairs = {_plain(key): _plain(member) for key, member in value.items()}
    return list(pairs.values()) if 1 in pairs else pairs


def _matches(pattern: bytes, text: bytes) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None
