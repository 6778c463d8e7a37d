"""Which results are yardsticks: those of the rollout's models, engine version, prompts and settings."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from specops import results
from specops.config import Rollout
from specops.experiment.arms import Arm
from specops.guard.signals.criteria import Missing, break_even
from specops.phases.ab.settings import AbSettings
from specops.phases.guard import deployment_criteria
from specops.phases.inputs import inputs_of, inputs_of_arms, left_out, settings_of, unlike, version_of
from specops.phases.monitor.render import render
from specops.phases.sweep.spec import spec_of
from specops.progress import SilentProgress
from specops.results import Result

VLLM = {"engine": "vllm", "model": "m", "version": "0.33.0"}
NGRAM = {"speculation": {"method": "ngram", "num_speculative_tokens": 3}}


def rollout(**changes: Any) -> Rollout:
    addresses = {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"], "routers": ["127.0.0.1:3"]}
    made = {"rollout": "r", "pools": {"standard": VLLM, "speculative": VLLM | NGRAM}, "addresses": addresses}
    return Rollout.model_validate(made | changes)


def of(standard: dict[str, Any]) -> Rollout:
    return rollout(pools={"standard": VLLM | standard, "speculative": VLLM | standard | NGRAM})


def baseline(file: Rollout, **environment: Any) -> Result:
    standard = file.pools.standard
    inputs = inputs_of(settings_of(file, standard), standard)
    return Result(
        phase="baseline",
        verdict="yes",
        reason="measured",
        inputs=inputs,
        environment=environment,
        data={"cells": []},
    )


def sweep(file: Rollout) -> Result:
    pools = {"standard": file.pools.standard, "k=3": file.pools.speculative}
    asked = settings_of(file, file.pools.standard)
    dumped = {name: pool.model_dump(mode="json") for name, pool in pools.items()}
    wanted = spec_of(file, Path())
    return Result(
        phase="sweep",
        verdict="yes",
        reason="swept",
        inputs=wanted.inputs(),
        settings=asked.plan() | {"settings": dumped},
        data={"steps": [{"setting": "k=3", "break_even_acceptance": 0.31}]},
    )


def ab(file: Rollout) -> Result:
    asked = settings_of(file, file.pools.standard)
    arms = [Arm("standard", file.pools.standard), Arm("speculative", file.pools.speculative)]
    inputs = inputs_of_arms(arms, asked, AbSettings(**file.ab.model_dump()), asked.prompt_set())
    return Result(phase="ab", verdict="yes", reason="compared", inputs=inputs)


MADE = {"baseline": baseline, "sweep": sweep, "ab": ab}


@pytest.mark.parametrize("phase", list(MADE))
@pytest.mark.parametrize(
    ("now", "what"),
    [
        (rollout(), None),
        (of({"model": "another"}), "settings|standard pool"),
        (of({"version": "0.32.0"}), "settings|standard pool"),
        (rollout(measure={"temperature": 0.7}), "settings"),
        (rollout(), "prompts"),
    ],
    ids=["the same", "model", "version", "settings", "prompts"],
)
def test_a_result_counts_for_what_it_was_measured_of(
    phase: str, now: Rollout, what: str | None, tmp_path: Path
) -> None:
    if what == "prompts":
        prompts = json.loads(Path("playbooks/embedded/prompts.json").read_text())
        kept = prompts[:20] if isinstance(prompts, list) else {**prompts, "prompts": prompts["prompts"][:20]}
        (tmp_path / "prompts.json").write_text(json.dumps(kept))
        now = rollout(prompts=str(tmp_path / "prompts.json"))
    found = unlike(now, MADE[phase](rollout()))
    if what is None:
        assert found is None
    else:
        assert found is not None
        assert any(word in found for word in what.split("|")), found


def test_the_speculative_pool_is_of_a_comparison_and_not_of_a_baseline() -> None:
    other = rollout(
        pools={
            "standard": VLLM,
            "speculative": VLLM | {"speculation": {"method": "ngram", "num_speculative_tokens": 5}},
        }
    )
    assert unlike(other, ab(rollout())) == "the settings"
    assert unlike(other, baseline(rollout())) is None


@pytest.mark.parametrize(("now", "counts"), [("0.33.0", True), ("0.32.1", False), (None, True)])
def test_the_version_that_serves_is_compared_with_the_one_that_was_measured(
    now: str | None, counts: bool
) -> None:
    found = unlike(rollout(), baseline(rollout(), server="0.33.0"), now)
    assert found == (None if counts else "the engine version (0.33.0 then, 0.32.1 now)")
    assert unlike(rollout(), baseline(rollout(), server=None), now) is None


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/version" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("body", "version"), [(b'{"version": "0.33.0"}', "0.33.0"), (b"<html>", None), (b'{"version": 3}', None)]
)
def test_the_version_is_asked_where_the_standard_pool_serves(body: bytes, version: str | None) -> None:
    with answering(body) as where:
        assert version_of(rollout(addresses={"standard": [where]})) == version
        endpoint = {"engine": "endpoint", "base_url": f"http://{where}/v1", "model": "m"}
        assert version_of(rollout(pools={"standard": endpoint, "speculative": endpoint})) == version
    assert version_of(rollout(addresses={"standard": [where]})) is None, "nobody answers any more"


def test_the_guard_says_at_its_start_what_it_does_not_judge_by(tmp_path: Path) -> None:
    results.write(tmp_path / "baseline.json", baseline(rollout()))
    results.write(tmp_path / "sweep.json", sweep(rollout()))
    assert left_out(rollout(), tmp_path) == {}
    plan, lines = deployment_criteria(rollout(), tmp_path)
    assert plan.min_acceptance.value == 0.31  # type: ignore[union-attr]
    plan, lines = deployment_criteria(of({"model": "another"}), tmp_path)
    assert isinstance(plan.baseline, Missing)
    assert plan.min_acceptance.value == 0.4  # type: ignore[union-attr]
    assert plan.min_acceptance.source.startswith("default; sweep.json is not used: the standard")  # type: ignore[union-attr]
    assert lines == [
        "baseline.json is not used as a reference: the settings changed since",
        "sweep.json is not used as a reference: the standard pool changed since",
        "latencies are not judged: baseline.json is not used: the settings changed since: "
        "specops run ROLLOUT --only baseline",
    ]


def test_monitor_render_says_the_same_and_leaves_them_out(tmp_path: Path) -> None:
    notes: list[str] = []

    class Noting(SilentProgress):
        def note(self, text: str) -> None:
            notes.append(text)

    results.write(tmp_path / "baseline.json", baseline(rollout()))
    results.write(tmp_path / "ab.json", ab(rollout()))
    made = render(of({"model": "another"}), tmp_path, Noting())
    assert notes[:2] == [
        "baseline.json is not used as a reference: the settings changed since",
        "ab.json is not used as a reference: the settings changed since",
    ]
    assert "baseline.json is not used: the settings changed since" in made.data["not_read"]["baseline"]


def test_prompts_that_cannot_be_read_leave_it_open(tmp_path: Path) -> None:
    results.write(tmp_path / "baseline.json", baseline(rollout()))
    (tmp_path / "gone.json").touch()
    found = left_out(rollout(prompts=str(tmp_path / "gone.json")), tmp_path)
    assert found["baseline"].startswith("whether it is of this rollout is not known: ")


@pytest.mark.parametrize(
    ("engine", "what"),
    [(VLLM, None), ({"engine": "embedded"}, "the machine or its software")],
    ids=["another machine drove the load", "another machine served"],
)
def test_the_machine_counts_where_it_serves(engine, what) -> None:
    speculation = NGRAM if engine is VLLM else {"speculation": {"tree": "ngram:3"}}
    file = rollout(pools={"standard": engine, "speculative": engine | speculation})
    for measured in (baseline(file), ab(file)):
        elsewhere = measured.model_copy(update={"inputs": measured.inputs | {"machine": "another"}})
        assert unlike(file, measured) is None
        assert unlike(file, elsewhere) == what


def embedded(folder: Path) -> Rollout:
    """A rollout whose models are in `folder`."""
    pool = {"engine": "embedded", "target": str(folder / "target")}
    drafts = {"speculation": {"draft": str(folder / "head"), "tree": "chain:3"}}
    return rollout(pools={"standard": pool, "speculative": pool | drafts})


def served_from(url: str) -> Rollout:
    pool = {"engine": "endpoint", "base_url": url, "model": "m"}
    return rollout(pools={"standard": pool, "speculative": pool})


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    """The shipped models, and a copy of them."""
    for name in ("here", "there"):
        for part in ("target", "head"):
            shutil.copytree(Path("playbooks/embedded") / part, tmp_path / name / part)
    return tmp_path / "here", tmp_path / "there"


@pytest.mark.parametrize("original", ["is there", "is gone", "changed since"])
def test_a_copied_rollout_has_the_same_yardsticks(copied: tuple[Path, Path], original: str) -> None:
    """Compared is what is in the folders that the rollout names now, not what they are called."""
    here, there = copied
    measured = {phase: MADE[phase](embedded(here)) for phase in MADE}
    if original == "is gone":
        shutil.rmtree(here)
    elif original == "changed since":
        (here / "head" / "notes.txt").write_text("another draft")
    now = embedded(there)
    assert {phase: unlike(now, result) for phase, result in measured.items()} == dict.fromkeys(MADE)
    assert break_even(now.pools.speculative, measured["sweep"]) == 0.31
    (there / "head" / "notes.txt").write_text("another draft")
    assert unlike(now, measured["sweep"]) == "a model"
    assert unlike(now, measured["baseline"]) is None, "it has no draft"


@pytest.mark.parametrize("phase", ["baseline", "ab"])
@pytest.mark.parametrize("spelling", ["http://localhost:9/v1", "http://127.0.0.1:9/v1/", "http://[::1]:9/v1"])
def test_another_spelling_of_an_address_is_the_same_server(phase: str, spelling: str) -> None:
    measured = MADE[phase](served_from("http://127.0.0.1:9/v1"))
    assert unlike(served_from(spelling), measured) is None
    assert unlike(served_from("http://127.0.0.1:8/v1"), measured) is not None
