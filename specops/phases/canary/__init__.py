"""Conformance: whether the speculative pool answers as the standard one, whatever is requested.

client.py         sends requests to a pool, so many at a time; the answers as checks use them; curl commands
pool_pair.py      both pools, a check of them, and a finding with its status
checks/           one file a family: requests, and the pure functions that judge their answers
two_samples.py    whether two sets of answers have the same distribution, and the power of that test

`canary`, for a rollout, and `conform`, for two servers, send both pools the requests of every check, one
check after the other, and say what follows.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from specops import results
from specops.config import Rollout
from specops.config.rollout import Canary, CheckName
from specops.errors import FileError, ServerError, UsageError
from specops.hints import folder_state, in_rollout
from specops.launch.servers import SERVED_AS, Server, serving
from specops.launch.servers import check as check_pool
from specops.load.arrivals import Pace
from specops.load.settings import BaselineSettings
from specops.load.workload import PromptSet
from specops.phases.canary.checks import CHECKS
from specops.phases.canary.checks.overlap import run_among_others
from specops.phases.canary.client import PoolClient, PoolLost, curl_of
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckOutcome,
    Conformance,
    ConformanceCheck,
    ConformanceFinding,
    PoolPair,
    Unsupported,
    spread,
)
from specops.phases.inputs import changed, inputs_of_settings, settings_of
from specops.phases.measurement import checked
from specops.progress import Progress
from specops.results import Result, Verdict

PHASE = "canary"
FILE = "canary.json"


def canary(
    rollout: Rollout,
    folder: Path,
    progress: Progress,
    *,
    only: Sequence[CheckName] = (),
    api_key_env: str | None = None,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Check the rollout's pools, started here where that is specops's to do. Logs go to `folder`/logs.

    `only` names the checks to make; none named makes all but those that the rollout file skips. Checks that
    `previous` holds are not made again: see `resumable`. `on_partial` gets a valid result after every check.
    Raises ConfigError, PromptsError, and EndpointError or ServerError for a pool that never answers.
    """
    pools = rollout.pools
    for name, pool in (("standard", pools.standard), ("speculative", pools.speculative)):
        check_pool(pool, name)  # before the other has been started, which takes minutes
    requested = settings_of(rollout, pools.standard).model_copy(update={"api_key_env": api_key_env})
    read = inputs(rollout, only)
    result: Result | None = None
    try:
        with (
            serving(
                pools.standard, "standard", model=SERVED_AS, log=_log(folder, "standard"), progress=progress
            ) as standard,
            serving(
                pools.speculative,
                "speculative",
                model=SERVED_AS,
                log=_log(folder, "speculative"),
                progress=progress,
            ) as speculative,
        ):
            result = conform(
                standard,
                speculative,
                requested,
                rollout.canary,
                progress,
                folder=folder,
                only=only,
                previous=previous,
                on_partial=lambda partial: on_partial(partial.model_copy(update={"inputs": read})),
            )
    except ServerError as error:
        if result is None:  # it did not come up
            raise
        progress.note(str(error))  # that it ended meanwhile is in the result
    return result.model_copy(update={"inputs": read})


def resumable(previous: Result, read: dict[str, str], name: str) -> bool:
    """Return whether a canary of the inputs `read` goes on from `previous`: a partial result of the same
    inputs. Raises FileError where the result, called `name` in the message, is damaged."""
    if previous.verdict != "partial" or changed(previous, read) is not None:
        return False
    checked(Conformance, previous.data, f"{name} is damaged: data")
    return True


def inputs(rollout: Rollout, only: Sequence[CheckName] = ()) -> dict[str, str]:
    """The hash of each input by name: unchanged, a canary need not run again."""
    pools = {"standard": rollout.pools.standard, "speculative": rollout.pools.speculative}
    requested = settings_of(rollout, pools["standard"])
    grid = {"canary": rollout.canary.model_dump(mode="json"), "only": sorted(only)}
    return inputs_of_settings(pools, requested, grid, requested.prompt_set())


def conform(
    standard: Server,
    speculative: Server,
    requested: BaselineSettings,
    settings: Canary,
    progress: Progress,
    *,
    folder: Path,
    only: Sequence[CheckName] = (),
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Return the canary's result for two servers that answer. `requested`: prompts, route and rate.
    Requests too long to be pasted are stored in `folder`/canary."""
    checks = [check for check in CHECKS if (check.name in only if only else check.name not in settings.skip)]
    if not checks:
        raise UsageError("every check of the canary is skipped", hint=in_rollout("skip", "shorten it"))
    prompts = requested.prompt_set()
    if len(prompts.prompts) < 2:
        raise UsageError(
            f"the canary needs two prompts, and {prompts.path} has one",
            hint=f"head -c 300 {shlex.quote(str(prompts.path))}",
        )
    earlier = Conformance.model_validate(previous.data) if previous is not None else None

    def partial(conformance: Conformance) -> None:
        reason = f"stopped after {len(conformance.checks)} of {len(checks)} checks"
        on_partial(_result(conformance, requested, settings, prompts, only, "partial", reason))

    conformance = asyncio.run(
        _requested(standard, speculative, requested, settings, progress, checks, folder, earlier, partial)
    )
    verdict, reason = judged(conformance.checks)
    return _result(conformance, requested, settings, prompts, only, verdict, reason)


def _result(
    conformance: Conformance,
    requested: BaselineSettings,
    settings: Canary,
    prompts: PromptSet,
    only: Sequence[CheckName],
    verdict: Verdict,
    reason: str,
) -> Result:
    count = {
        status: sum(finding.status == status for finding in conformance.checks) for status in ("pass", "fail")
    }
    return Result(
        phase=PHASE,
        inputs={"prompts": prompts.sha256},
        settings=requested.plan() | {"canary": settings.model_dump(mode="json"), "only": sorted(only)},
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "checks": len(conformance.checks),
            "passed": count["pass"],
            "failed": [finding.name for finding in conformance.checks if finding.status == "fail"],
            "undecided": [finding.name for finding in conformance.checks if finding.status == "undecided"],
            "unsupported": sorted(
                {finding.parameter for finding in conformance.unsupported if finding.pool == "speculative"}
            ),
        },
        data=conformance.model_dump(mode="json"),
    )


def judged(checks: Sequence[ConformanceFinding]) -> tuple[Verdict, str]:
    """The verdict is no where a check failed. A check that a pool does not support is not a fault of
    speculation."""
    failed = [finding.name for finding in checks if finding.status == "fail"]
    if failed:
        return "no", f"the speculative pool fails {', '.join(failed)}"
    if undecided := [finding.name for finding in checks if finding.status == "undecided"]:
        return "undecided", f"undecided: {', '.join(undecided)}"
    passed = sum(finding.status == "pass" for finding in checks)
    unsupported_count = len(checks) - passed
    if not passed:
        return "undecided", f"undecided: all {unsupported_count} checks are unsupported by at least one pool"
    more = f", {unsupported_count} unsupported by at least one pool" if unsupported_count else ""
    return "yes", f"{passed} checks passed{more}: the speculative pool answers as the standard pool does"


def unsupported(checks: Sequence[ConformanceFinding]) -> list[Unsupported]:
    """Return what one pool does not support and the other does, once for each parameter."""
    entries: dict[tuple[str, str], Unsupported] = {}
    for finding in checks:
        if finding.parameter is None or finding.status not in ("differs", "fail"):
            continue
        # what only the standard pool lacks is named, and routes nothing
        pool = "standard" if finding.status == "differs" and not finding.speculative else "speculative"
        request = finding.request or ""
        entry = Unsupported(parameter=finding.parameter, pool=pool, request=request, why=finding.message)  # type: ignore[arg-type]
        entries.setdefault((finding.parameter, pool), entry)
    return list(entries.values())


async def _requested(
    standard: Server,
    speculative: Server,
    requested: BaselineSettings,
    settings: Canary,
    progress: Progress,
    checks: Sequence[ConformanceCheck],
    folder: Path,
    earlier: Conformance | None,
    partial: Callable[[Conformance], None],
) -> Conformance:
    """Every check's finding. `earlier` holds findings to reuse; `partial` gets all so far, after each check
    that both pools survived."""
    before = {finding.name: finding for finding in earlier.checks} if earlier is not None else {}
    sent = earlier.requests if earlier is not None else {}
    prompts = requested.prompt_set()
    pace = Pace(requested.max_rps)
    async with AsyncExitStack() as stack:
        most = settings.concurrency
        standard_pool = await stack.enter_async_context(
            PoolClient("standard", requested.at(standard, "standard").target(), most, pace)
        )
        speculative_pool = await stack.enter_async_context(
            PoolClient("speculative", requested.at(speculative, "speculative").target(), most, pace)
        )
        pair = PoolPair(standard_pool, speculative_pool, spread(prompts, settings.prompts), settings)
        for pool in (standard_pool, speculative_pool):
            await pool.introduce(pool.greedy(pair.prompts[0], 4))
        progress.note(
            f"the canary sends requests to {standard_pool.endpoint.base_url} and "
            f"{speculative_pool.endpoint.base_url}, at most {settings.concurrency} at a time to each"
        )
        if before:
            progress.note(f"{len(before)} of {len(checks)} checks reused; the others run now")
        progress.start("checking that both pools answer alike", len(checks))
        findings: list[ConformanceFinding] = []
        gone: PoolLost | None = None

        def so_far() -> Conformance:
            return Conformance(
                checks=findings,
                unsupported=unsupported(findings),
                requests={
                    pool.name: sent.get(pool.name, 0) + pool.sent
                    for pool in (standard_pool, speculative_pool)
                },
                prompts=prompts.provenance(),
            )

        for check in checks:
            if check.name in before:
                findings.append(before[check.name])
                progress.advance()
                continue
            if gone is None:
                try:
                    outcome = await conclude(check, pair)
                    if outcome.status == "fail" and (gone := await _gone(pair)):
                        outcome = replace(
                            outcome, message=f"{outcome.message}; after that the pool stopped answering"
                        )
                except PoolLost as error:
                    gone = error
                    outcome = CheckOutcome("fail" if error.pool == "speculative" else "undecided", str(error))
            else:
                outcome = CheckOutcome("undecided", f"not sent: {gone}")
            findings.append(_finding(check, outcome, pair, folder))
            progress.advance()
            if gone is None:
                partial(so_far())
        return so_far()


async def conclude(check: ConformanceCheck, pair: PoolPair) -> CheckOutcome:
    """Make a check: alone, and a feature's again among other requests. It passes only where both pools show
    answers to compare."""
    outcome = await check.run(pair)
    if check.feature and outcome.status == "pass":
        crowded = await run_among_others(check, pair)
        if crowded.status != "pass":
            message = f"alone it holds; while other requests overlap: {crowded.message}"
            return replace(crowded, message=message)
    if outcome.status == "pass":
        for pool in (pair.standard, pair.speculative):
            asks = [pool.greedy(prompt, PLAIN_TOKENS) for prompt in pair.prompts]
            if not any([(await pool.plain(ask)).text for ask in asks]):
                message = f"no answer of the {pool.name} pool to a plain prompt has any text to compare"
                return CheckOutcome("undecided", message, asks[0])
    return outcome


async def _gone(pair: PoolPair) -> PoolLost | None:
    """Return why the speculative pool does not answer the plainest request any more; None where it does."""
    try:
        reply = await pair.speculative.ask(pair.speculative.greedy(pair.prompts[0], 1))
    except PoolLost as error:
        return error
    if reply.ok:
        return None
    assert reply.failure is not None
    return PoolLost("speculative", reply.failure)


def _finding(
    check: ConformanceCheck, outcome: CheckOutcome, pair: PoolPair, folder: Path
) -> ConformanceFinding:
    def keep(body: str) -> str:
        path = folder / PHASE / f"{check.name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        except OSError as error:
            raise FileError(f"could not write {path}: {error.strerror}", hint=folder_state(folder)) from error
        return str(path)

    pool = pair.speculative
    request = curl_of(outcome.ask, pool.endpoint, keep, outcome.among) if outcome.ask else None
    return ConformanceFinding(
        name=check.name,
        status=outcome.status,
        message=outcome.message,
        request=request,
        parameter=check.parameter,
        standard=outcome.standard,
        speculative=outcome.speculative,
        evidence=outcome.evidence or {},
    )


def _log(folder: Path, name: str) -> Path:
    return folder / "logs" / f"canary-{name}.log"
