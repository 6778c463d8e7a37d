"""`specops route check`: whether NGINX takes what was rendered, and sends requests where they should go."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from specops import results
from specops.config import Rollout
from specops.errors import FileError
from specops.phases.route.cases import Case, shipped
from specops.phases.route.explain import LOOPBACK, Judge, Request, damaged, may_choose
from specops.phases.route.made_up import made_up
from specops.phases.route.render import CONF, of, text
from specops.phases.route.thresholds import PLAYBOOK, rules
from specops.phases.route.trial import Answer, ask, nginx, refusal, trial, trusted
from specops.progress import Progress
from specops.render.nginx.config import LUA
from specops.results import Result

RULES = "lua/specops/rules.lua"
MADE_UP, SEED = 300, 0
"""Bodies of every kind that NGINX must read as `explain` does, whatever LuaJIT either has."""


class Tried(BaseModel):
    """A case, and what became of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    expected: str
    pool: str
    """That the real router chose."""

    traffic_class: str
    reason: str
    wrong: str | None
    """None where it went where it should."""


def check_rollout(
    rollout: Rollout, folder: Path, cases: Sequence[Case], named: str | None, progress: Progress
) -> Result:
    """What `route render` would write now, with the results in `folder`."""
    return check(text(of(rollout, rules(rollout, folder))), cases, named, progress)


def check_config(path: Path, cases: Sequence[Case], named: str | None, progress: Progress) -> Result:
    """The configuration that lies in a folder, as it is there."""
    names = [CONF, RULES, *(f"lua/specops/{name}.lua" for name in LUA)]
    try:
        files = {name: (path.parent / name).read_text(encoding="utf-8") for name in names if name != CONF}
        files[CONF] = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read the router's configuration: {error}",
            hint="give the nginx.conf that `specops route render ROLLOUT` wrote, without --native",
        ) from error
    return check(files, cases, named, progress)


def check(files: Mapping[str, str], cases: Sequence[Case], named: str | None, progress: Progress) -> Result:
    """`files` as they are with `nginx -t`, then moved to loopback with requests. Raises EnvironmentFailure
    where there is no NGINX, or it does not start."""
    program = nginx(named)
    inputs = {"files": results.sha256(dict(files))}
    refused = refusal(program, files)
    if refused is not None:
        said, hint = explained(refused)
        return _result(inputs, "no", said, [], {"refused": refused, "hint": hint})
    networks = trusted(files[CONF])
    judge = Judge(files[RULES], networks)
    every = [*shipped(whole(judge.table), trusted=may_choose(LOOPBACK, networks)), *cases]
    tried = []
    with trial(program, files, progress) as connection:
        progress.start("asking the router", total=len(every) + MADE_UP)
        for case in every:
            tried.append(_try(connection, judge, case))
            progress.advance()
        for request in islice(made_up(SEED), MADE_UP):
            if why := disagreement(request, ask(connection, request), judge):
                told = f"made up: {request.body[:200]!r}"
                tried.append(Tried(name=told, expected="", pool="", traffic_class="", reason="", wrong=why))
            progress.advance()
    wrong = [one for one in tried if one.wrong]
    data = {"made_up": MADE_UP}
    if wrong:
        return _result(inputs, "no", f"{len(wrong)} of {len(tried)} requests went wrong", tried, data)
    reason = f"all {len(tried)} requests went where they should, and {MADE_UP} made-up ones as `explain` says"
    return _result(inputs, "yes", reason, tried, data)


_RULES = {"speculate", *PLAYBOOK, "classes", "default", "unsupported", "wanted", "unsized", "paths"}


def whole(table: object) -> Mapping[str, Any]:
    """What rules.lua returned; UsageError where that is not what `route render` writes."""
    if not isinstance(table, Mapping):
        raise damaged("it returns no table of names")
    if lacking := _RULES - table.keys():
        raise damaged(f"it has no {min(lacking)}")
    return table


def _try(connection: http.client.HTTPConnection, judge: Judge, case: Case) -> Tried:
    got = ask(connection, case.request)
    return Tried(
        name=case.name,
        expected=case.pool,
        pool=got.pool,
        traffic_class=got.traffic_class,
        reason=got.reason,
        wrong=_wrong(case, got, judge),
    )


def _wrong(case: Case, got: Answer, judge: Judge) -> str | None:
    if got.pool != case.pool:
        return f"it went to {got.pool}, and not to {case.pool}"
    if case.traffic_class is not None and got.traffic_class != case.traffic_class:
        return f"its class was {got.traffic_class}, and not {case.traffic_class}"
    return disagreement(case.request, got, judge)


def disagreement(request: Request, got: Answer, judge: Judge) -> str | None:
    """What the router did that `route explain` does not say; None where they agree."""
    if got.status >= 500:
        return f"it was answered {got.status}"
    told = judge.decide(request)
    if (told["pool"], told["reason"]) != (got.pool, got.reason):
        return f"`route explain` says {told['pool']}, {told['reason']}; the router {got.pool}, {got.reason}"
    return None


_SAID = (
    (
        r'host not found in (?:upstream )?"([^"]+)"',
        "the name {0} does not resolve here, and NGINX looks names up only when it starts",
        "give addresses, or names that resolve where NGINX runs",
    ),
    (
        r'dlopen\(\) "([^"]+)" failed',
        "NGINX's Lua module is not at {0}",
        "on Debian: apt-get install libnginx-mod-http-lua; else set route.modules, or render with --native",
    ),
    (
        r'unknown directive "(lua_\w+|\w+_by_lua\w*)"',
        "this NGINX has no Lua module",
        "set route.modules to the folder that it is in, or render with --native",
    ),
    (
        r"bind\(\) to (\S+) failed \(13",
        "this user may not listen on {0}",
        "start NGINX as root with route.user set, or listen on a port above 1023",
    ),
    (
        r'getpwnam\("([^"]+)"\) failed',
        "there is no user {0} here",
        "create it, or set route.user to one that there is",
    ),
)


def explained(message: str) -> tuple[str, str]:
    """NGINX's own words as a sentence, and what to do."""
    for pattern, said, hint in _SAID:
        if found := re.search(pattern, message):
            return f"NGINX refuses the configuration: {said.format(*found.groups())}", hint
    return f"NGINX refuses the configuration: {message}", "mend the rollout file's section route"


def _result(
    inputs: dict[str, str], verdict: results.Verdict, reason: str, tried: list[Tried], more: dict[str, Any]
) -> Result:
    return Result(
        phase="route-check",
        inputs=inputs,
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={"requests": len(tried), "wrong": sum(one.wrong is not None for one in tried)},
        data={"tried": [one.model_dump() for one in tried], **more},
    )
