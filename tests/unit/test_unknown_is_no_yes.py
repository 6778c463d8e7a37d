"""What was not read never reaches a positive sentence of doctor, monitor check, checklist or diagnose."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import yaml
from made_checklists import ATTESTED, Made
from test_monitor_check import Answering, rollout

from specops.access import NOTHING
from specops.errors import Exit
from specops.load.counters import Observed
from specops.phases import diagnose, doctor
from specops.phases.checklist.checklist import ITEMS
from specops.phases.diagnose.finding import DiagnosisFinding
from specops.phases.diagnose.observations import AbFigures, AcceptanceAtLoad, Live, Observations, SweepFigures
from specops.phases.doctor import result
from specops.phases.doctor.deployment import _standard
from specops.phases.doctor.endpoint import _watched, acceptance_check
from specops.phases.doctor.fixes import start
from specops.phases.doctor.machine import Check, Status
from specops.phases.doctor.programs import _named
from specops.phases.init import _ordered
from specops.phases.monitor.check import NameState, _result, check, fitting
from specops.phases.monitor.check import Status as NameStatus
from specops.progress import SilentProgress
from specops.prometheus.api import Api
from specops.prometheus.exposition import parse
from specops.serving import USUAL, namings
from specops.serving.endpoint import pool_at

INPUTS = yaml.safe_load(
    Path(__file__).with_name("public_inputs").joinpath("inputs.yaml").read_text(encoding="utf-8")
)
SCRAPES = {
    one["id"]: one["text"]
    for one in INPUTS
    if one["kind"] == "metrics" and one["half"] in ("developed", "later")
}
UNKNOWN = {
    name: text
    for name, text in SCRAPES.items()
    if next(one for one in INPUTS if one["id"] == name)["right"]["speculates"] is None
} | {"empty": "", "another program": "up 1\nprocess_start_time_seconds 1.7e9\n"}
URL = "http://127.0.0.1:47162/v1"


# --- doctor: its positive sentences are the checks whose status is ok ------------------------------


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_doctor_says_unknown_of_metrics_that_tell_nothing(text: str) -> None:
    found = acceptance_check(parse(text), URL, speculates=True)
    assert found.status == "unknown"
    assert found.fix is not None, "how it would be found out"


@pytest.mark.parametrize("name", sorted(SCRAPES.keys() - UNKNOWN.keys()))
def test_doctor_reads_the_names_of_each_engine(name: str) -> None:
    assert acceptance_check(parse(SCRAPES[name]), URL, speculates=True).status == "ok"


def test_doctor_says_that_vllm_without_its_counters_does_not_speculate() -> None:
    found = acceptance_check(parse("vllm:generation_tokens_total 9\n"), URL, speculates=True)
    assert found.status == "warn"
    assert found.fix is not None
    assert "--speculative" in found.fix


@pytest.mark.parametrize("observed", [Observed(None, None), Observed(None, 1.2)])
def test_doctor_does_not_pass_a_standard_that_shows_nothing(observed: Observed) -> None:
    pools = rollout().pools.model_copy(update={"standard": pool_at(URL, "m")})
    with_endpoints = rollout().model_copy(update={"pools": pools})
    assert _standard(with_endpoints, observed, None).status == "unknown"
    assert _standard(with_endpoints, Observed(0.0, None), None).status == "ok"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("ok",), Exit.YES),
        (("ok", "warn"), Exit.YES),
        (("ok", "unknown"), Exit.UNDECIDED),
        (("fail", "unknown"), Exit.NO),
    ],
)
def test_doctors_verdict_rests_on_nothing_unknown(statuses: tuple[Status, ...], code: Exit) -> None:
    found = result([Check(name=status, status=status, found="x") for status in statuses])
    assert found.exit_code == code
    assert ("1 unknown" in found.reason) is ("unknown" in statuses)


@pytest.mark.parametrize("speculates", [True, False])
def test_doctor_never_proposes_a_server_of_ours_on_the_users_port(speculates: bool) -> None:
    assert "specops" not in start(URL, speculates=speculates)


def positive_names(folder: Path) -> set[str]:
    """Names of the checks that some function of doctor can answer with ok."""
    names: set[str] = set()
    for source in folder.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check":
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                if "'ok'" in ast.dump(given["status"]):
                    names.add(ast.unparse(given["name"]).strip("'\""))
    return names


OF_DOCTOR = {
    # of servers and what is read of them: the test that an unknown input does not reach it
    "metrics": "test_doctor_says_unknown_of_metrics_that_tell_nothing",
    "metric names": "test_doctor_does_not_pass_metrics_of_no_engine",
    "prometheus names": "test_doctor_does_not_pass_names_that_wait_for_traffic",
    "name": "test_doctor_does_not_pass_a_standard_that_shows_nothing; pools and packages by their names",
    # what was asked answered, or is there
    "endpoint": "it answered a request",
    "prometheus server": "it answered",
    "router": "it answered with its switch",
    "guard": "it answered",
    "prompts": "the file was read",
    "program": "it is on PATH",
    "router.name": "its package looked at the program; of NGINX, the list of modules was read",
    "scheduler": "says which there are, or that there is none",
    "package": "says that it is not installed, or which version answered",
    "shipped pair": "the files are there",
    "cores": "counted", "disk": "measured", "port": "opened",
    "gpu": "nvidia-smi or NVML answered, or neither is here",
    "specops": "this program", "python": "this program",
}  # fmt: skip


def test_every_positive_check_of_doctor_is_here() -> None:
    """A new check that can be ok needs its line above, and its test where it rests on what a server shows."""
    assert positive_names(Path(doctor.__file__).parent) == OF_DOCTOR.keys()
    tests = {why.partition(";")[0] for why in OF_DOCTOR.values() if why.startswith("test_")}
    assert tests <= globals().keys()


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_doctor_does_not_pass_metrics_of_no_engine(text: str) -> None:
    assert _watched(URL, {name for name, _ in parse(text)}, ["m"], None, NOTHING).status != "ok"


def test_doctor_does_not_pass_names_that_wait_for_traffic() -> None:
    lazy = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    waits = check(rollout(), cast(Api, Answering((lazy,), 0.0, 0.0)), SilentProgress())
    found = _named(waits, "http://127.0.0.1:9090", None)
    assert found.status == "unknown"
    assert found.fix is not None
    seen = check(rollout(), cast(Api, Answering((), 500.0, 500.0)), SilentProgress())
    assert _named(seen, "http://127.0.0.1:9090", None).status == "ok"


# --- init ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "up 1\n", "tgi_queue_size 0\n"])
def test_init_names_no_engine_that_the_metrics_do_not_show(text: str) -> None:
    assert fitting(USUAL, "speculative", {name for name, _ in parse(text)}) is None


def test_init_names_the_engine_that_they_show() -> None:
    names = {name for name, _ in parse(SCRAPES["sglang-gauges-without-verify-counter"])}
    assert fitting(USUAL, "speculative", names) == "sglang"
    assert set(namings()) >= {"sglang"}


def test_init_does_not_say_that_a_silent_server_verified_no_drafts() -> None:
    places: Any = ["a", "b"]
    assert "verified no drafts" in _ordered(places, [Observed(5.0, 2.0), Observed(0.0, 1.0)]).why[0]
    assert "verified no drafts" not in _ordered(places, [Observed(5.0, 2.0), Observed(None, 1.0)]).why[0]


# --- monitor check ---------------------------------------------------------------------------------


def test_monitor_check_is_undecided_while_a_servers_own_names_are_not_seen() -> None:
    lazy = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    seen = check(rollout(), cast(Api, Answering((), 500.0, 500.0)), SilentProgress())
    waits = check(rollout(), cast(Api, Answering((lazy,), 0.0, 0.0)), SilentProgress())
    assert seen.verdict == "yes"
    assert (waits.verdict, waits.exit_code) == ("undecided", Exit.UNDECIDED)
    assert "1 unknown" in waits.reason


def test_monitor_check_is_no_where_no_name_exists() -> None:
    class Nothing:
        url = "http://127.0.0.1:9090"

        def ready(self) -> None: ...
        def instant(self, expr: str) -> list[Any]:
            return []

    for file in (None, rollout()):
        assert check(file, cast(Api, Nothing()), SilentProgress()).verdict == "no"


@pytest.mark.parametrize("status", get_args(NameStatus))
def test_monitor_check_is_yes_only_of_names_that_are_there(status: NameStatus) -> None:
    """Of all states that a name of a server can have."""
    one = NameState(
        name="vllm:a",
        where="speculative pool",
        needs="b",
        status=status,
        age_s=None,
        now_called=None,
        fix=None,
    )
    assert (_result(rollout(), URL, [one], frozenset()).verdict == "yes") == (status == "there")


# --- checklist: its positive sentences are the items that passed -----------------------------------


@pytest.mark.parametrize("phase", ["baseline", "drafts", "sweep", "canary", "guard-drill"])
def test_no_item_passes_by_a_result_that_is_undecided(phase: str, tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.fill()
    (made.folder / "attestations.json").unlink()
    _, before = made.checked()
    made.change(phase, verdict="undecided")
    _, after = made.checked()
    item = {"baseline": "baseline", "drafts": "draft-compatible", "sweep": "k-swept", "canary": "canary",
            "guard-drill": "fallback-tested"}[phase]  # fmt: skip
    assert before[item].status == "passed"
    assert after[item].status != "passed"


def test_no_item_passes_where_nothing_was_measured_and_nobody_said_so(tmp_path: Path) -> None:
    result, items = Made(tmp_path).checked()
    assert items.keys() == {spec.name for spec in ITEMS}
    assert {item.status for item in items.values()} == {"open"}
    assert result.verdict == "undecided"


def test_what_nothing_shows_leaves_the_items_of_running_parts_open(tmp_path: Path) -> None:
    """Measured by results alone: what a Prometheus, a router, a guard and a person show is unknown."""
    made = Made(tmp_path)
    made.fill()
    (made.folder / "attestations.json").unlink()
    _, items = made.checked()
    assert {name for name, item in items.items() if item.status == "open"} == set(ATTESTED)


# --- diagnose: its positive sentences are the findings that are ruled out --------------------------

EMPTY = Live(source="a server", over="5m")
SWEEP = SweepFigures(
    source="s", setting=None, k=None, break_even=None, draft_ms=None, target_ms=None, per_position=(),
    on_max=None, off_min=None, by_length={}, by_temperature={}, classes_off={},
)  # fmt: skip
AB = AbFigures(
    source="ab", e2e=None, ttft=None, ttft_change_ms=None, acceptance=None, drafts=0, classes={}, equal=None,
    compared=None, control=None,
)  # fmt: skip


@pytest.mark.parametrize("judge", diagnose.CHECKS, ids=lambda judge: judge.__name__)
def test_no_check_rules_out_what_was_not_observed(judge: Callable[[Observations], DiagnosisFinding]) -> None:
    for observed in (
        Observations(rollout="made"),
        Observations(rollout="made", live=EMPTY),
        Observations(rollout="made", live=EMPTY, standard=EMPTY, sweep=SWEEP, compared=AB),
    ):
        found = judge(observed)
        shown = observed.live is not None and found.id == "server-stuck"  # it asks for stuck servers alone
        assert found.severity == "unknown" or shown, (found.id, found.message)
        assert found.severity != "unknown" or found.fix, "how it would be found out"


def test_diagnose_is_undecided_while_a_check_has_no_evidence() -> None:
    found = diagnose.diagnose(Observations(rollout="made", live=EMPTY))
    assert (found.verdict, found.exit_code) == ("undecided", Exit.UNDECIDED)
    assert "unknown: " in found.reason
    assert "yes" in get_args(diagnose.Verdict)


@pytest.mark.parametrize(
    ("rates", "severity"),
    [
        (((1, 0.59, 400.0), (2, 0.06, 400.0)), "cause"),
        (((1, 0.59, 400.0), (8, 0.58, 400.0)), "ruled_out"),
        (((1, 0.59, 6.0), (2, 0.40, 6.0)), "contributing"),
        (((1, 0.59, 400.0),), "unknown"),
    ],
)
def test_acceptance_that_falls_with_streams_is_the_engines_defect(
    rates: tuple[tuple[int, float, float], ...], severity: str
) -> None:
    by_streams = tuple(AcceptanceAtLoad(streams=n, rate=rate, drafts=drafts) for n, rate, drafts in rates)
    observed = Observations(rollout="made", compared=AB.model_copy(update={"by_streams": by_streams}))
    found = next(one for one in diagnose.findings(observed) if one.id == "acceptance-under-load")
    assert found.severity == severity
