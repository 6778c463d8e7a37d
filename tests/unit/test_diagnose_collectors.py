"""Where observations come from: results, logs, commands and streams; what cannot be seen is a sentence."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_monitoring import POOLS, rollout
from made_sweeps import judged, loads, settings, swept

from specops import results
from specops.access import NOTHING
from specops.guard.journal import Entry, EntryEvidence, Journal
from specops.guard.state import State
from specops.load.answer import Answer, Chunk
from specops.load.request_times import Observation
from specops.phases.diagnose.checks import draft
from specops.phases.diagnose.collectors import live, run_folder
from specops.phases.diagnose.collectors.live import ScrapedPool
from specops.phases.diagnose.observations import (
    AbFigures,
    BaselineFigures,
    Fallbacks,
    GpuFigures,
    LintFigures,
    Live,
    Observations,
    StreamFigures,
    SweepFigures,
    VocabularyLogLines,
)
from specops.phases.monitor.thresholds import measurements
from specops.phases.run_folder import RunFolder
from specops.phases.sweep.plan import STORED, Measurements
from specops.prometheus import exposition
from specops.results import Result, sealed

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"
VLLM = {"engine": "vllm", "model": "meta-llama/Llama-3.1-70B-Instruct"}


def test_what_was_compared_is_read_as_it_is_kept(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "ab.json", tmp_path)
    shutil.copy(EXAMPLES / "baseline.json", tmp_path)
    kept = json.loads((tmp_path / "ab.json").read_text())["data"]
    found = run_folder.comparison(RunFolder(tmp_path))
    assert isinstance(found, AbFigures)
    challenger = kept["challengers"]["speculative"]
    assert found.e2e is not None
    assert found.e2e.estimate == challenger["levels"][0]["speedups"]["e2e"]["estimate"]
    assert set(found.classes) == set(challenger["classes"])
    streams = [one["level"]["concurrency"] for one in challenger["deploy"]]
    assert (found.streams, found.up_to) == (
        challenger["levels"][0]["speedups"]["level"]["concurrency"],
        max(streams, default=0),
    )
    counted = [level["acceptance"] for level in kept["arms"]["speculative"]]
    drafted = sum(one["draft_tokens"] for one in counted)
    assert found.acceptance == pytest.approx(sum(one["accepted_tokens"] for one in counted) / drafted)
    loads = run_folder.baseline(measurements(rollout(), tmp_path))
    assert isinstance(loads, BaselineFigures)
    assert [load.concurrency for load in loads.loads] == [1, 4, 8][: len(loads.loads)]


def test_the_worst_of_greedy_answers_counts_also_where_sampled_ones_share_the_batch(tmp_path: Path) -> None:
    kept = json.loads((EXAMPLES / "ab.json").read_text())
    alone = kept["data"]["challengers"]["speculative"]["parity"][0]
    same = {
        "equal": 8,
        "compared": 8,
        "near_ties": 0,
        "witnesses": [],
        "control": {"equal": 8, "compared": 8},
    }
    kept["data"]["challengers"]["speculative"]["parity"] = [
        alone | same | {"mixed": False},
        alone | same | {"mixed": True, "equal": 1},
    ]
    (tmp_path / "ab.json").write_text(sealed(kept))
    found = run_folder.comparison(RunFolder(tmp_path))
    assert isinstance(found, AbFigures)
    assert (found.equal, found.compared, found.control, found.mixed) == (1, 8, 1.0, True)


def test_what_is_not_there_or_damaged_is_a_sentence(tmp_path: Path) -> None:
    known = measurements(rollout(), tmp_path)
    now = datetime.now(UTC)
    swept = run_folder.swept(rollout(), RunFolder(tmp_path), known)
    run = RunFolder(tmp_path)
    parts = (run_folder.comparison(run), swept, run_folder.drafts(run))
    parts += (run_folder.canary(run), run_folder.fallbacks(tmp_path, now), run_folder.logged(tmp_path))
    assert all(isinstance(part, str) and part for part in parts)
    for phase in ("ab", "sweep", "drafts", "canary"):
        (tmp_path / f"{phase}.json").write_text("{}")
    known = measurements(rollout(), tmp_path)
    swept = run_folder.swept(rollout(), RunFolder(tmp_path), known)
    parts = (run_folder.comparison(RunFolder(tmp_path)), swept, run_folder.drafts(RunFolder(tmp_path)))
    assert all("is damaged" in str(part) for part in (*parts, run_folder.canary(RunFolder(tmp_path))))


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Draft model and target model have different vocab sizes",  # the playbook's
        "RuntimeError: Draft model vocab size 32000 != target model vocab size 128256",
        "ValueError: Target and draft model should have the same vocabulary size.",
    ],
)
def test_a_log_that_names_unlike_vocabularies_is_recognised(line: str, tmp_path: Path) -> None:
    (tmp_path / "logs" / "sweep").mkdir(parents=True)
    (tmp_path / "logs" / "baseline.log").write_text("the vocab size of the model is 128256\n" * 100)
    (tmp_path / "logs" / "sweep" / "k=4.log").write_text(f"x\n(EngineCore pid=7) {line}\nbye\n")
    found = run_folder.logged(tmp_path)
    assert isinstance(found, VocabularyLogLines)
    assert (len(found.lines), found.source) == (1, "logs/sweep/k=4.log")
    assert line in found.lines[0]


@pytest.mark.parametrize(
    ("version", "more", "levels"),
    [
        ("0.33.0", {}, {"note"}),
        ("0.12.0", {"more": {"disable_by_batch_size": 8}}, {"error", "warning", "note"}),
    ],
)
def test_a_dead_setting_of_the_pools_own_command_is_found(
    version: str, more: dict[str, Any], levels: set[str]
) -> None:
    speculation = {"method": "eagle3", "model": "a/head", "num_speculative_tokens": 3} | more
    pools = {
        "standard": VLLM | {"version": version},
        "speculative": VLLM | {"version": version, "speculation": speculation},
    }
    found = run_folder.lint(rollout(pools=pools))
    assert isinstance(found, LintFigures)
    seen = {one.level for one in found.findings}
    assert seen <= levels
    assert bool(more) == bool(seen & {"error", "warning"})


def test_fall_backs_of_a_week_are_counted_once_each(tmp_path: Path) -> None:
    now = datetime.now(UTC).timestamp()
    (tmp_path / "guard").mkdir()
    journal = Journal(tmp_path / "guard" / "journal.jsonl")
    for id_, days in ((1, 9.0), (2, 3.0), (3, 1.0), (3, 1.0)):  # its line again, with what came of it
        told = EntryEvidence(why=f"bad {id_}", events=("fell_back",))
        journal.append(Entry(ts=now - 86400 * days, id=id_, verdict="bad", evidence=told, state=State()))
    found = run_folder.fallbacks(tmp_path, datetime.now(UTC))
    assert isinstance(found, Fallbacks)
    assert found.week == 2
    assert found.last is not None
    assert found.last.endswith("bad 3")


class Nvml:
    """Two devices, as NVML tells of them."""

    class NVMLError(Exception): ...

    def __init__(self, *used: int, broken: bool = False) -> None:
        self.used, self.broken, self.open = used, broken, 0

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.used[handle] * 2**30, total=80 * 2**30)


def test_the_fullest_device_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(10, 76)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert live.gpu() == GpuFigures(source="NVML", used_gib=76, total_gib=80)
    assert nvml.open == 0
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    assert live.gpu() == "this machine has no NVIDIA device"
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(broken=True))
    assert "no driver" in str(live.gpu())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in str(live.gpu())


MARKS = st.lists(st.tuples(st.floats(0.001, 0.3), st.integers(1, 6)), min_size=2, max_size=30)


def answered(gaps: list[tuple[float, int]], *, counted: bool = True) -> Observation:
    """A chunk comes after each gap."""
    at, chunks = 0.0, []
    for gap, tokens in gaps:
        at += gap
        chunks.append(Chunk(at, tokens if counted else None))
    answer = Answer(chunks=tuple(chunks), tokens=sum(tokens for _, tokens in gaps), text="x")
    return Observation("p", "chat", 0.0, 0.0, 0.0, at, answer)


@given(st.lists(MARKS, min_size=1, max_size=4))
def test_a_reader_at_the_pace_with_the_buffer_never_runs_dry(answers: list[list[tuple[float, int]]]) -> None:
    found = live.summarized([answered(gaps) for gaps in answers], "a server")
    assert isinstance(found, StreamFigures)
    assert found.buffer_ms is not None
    assert found.tokens_per_chunk == pytest.approx(
        sum(n for gaps in answers for _, n in gaps) / sum(len(gaps) for gaps in answers)
    )
    driest = float("inf")
    for gaps in answers:
        at, came = 0.0, 0.0
        begun = gaps[0][0] + found.buffer_ms / 1000
        for gap, tokens in gaps:
            at += gap
            drawn = (at - begun) * found.tokens_per_s  # were it not for the chunk that comes now
            driest = min(driest, came - drawn)
            came += tokens
    assert driest == pytest.approx(0.0, abs=1e-6)  # enough, and not more than it takes


def test_streams_of_which_no_tokens_are_known_say_so() -> None:
    bare = answered([(0.1, 1), (0.1, 1)], counted=False)
    assert isinstance(live.summarized([bare], "a server"), StreamFigures)
    assert "does not say how many tokens" in str(live.summarized([answered([(0.1, 5)])], "a server"))


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump({"rollout": "made", "pools": POOLS} | changes))
    return path


def test_where_nothing_is_up_the_run_folder_is_looked_at_all_the_same(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "ab.json", tmp_path)
    nobody = {"prometheus": "http://127.0.0.1:9", "speculative": ["127.0.0.1:9"]}
    path = written(tmp_path, addresses=nobody)
    done = specops("diagnose", str(path), "--out", str(tmp_path), "--quiet", "--no-requests", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == {"yes": 0, "no": 1, "undecided": 4}[told["verdict"]], done.stderr
    assert "nothing listens there" in told["data"]["observations"]["missing"]["live"]
    # That comparison is not of these pools.
    assert told["data"]["observations"]["compared"] is None
    assert told["data"]["observations"]["missing"]["compared"].startswith("ab.json is not used: ")
    assert json.loads((tmp_path / "diagnose.json").read_text())["data"] == told["data"]


def test_a_token_for_prometheus_that_is_none_is_told_and_hides_nothing_else(
    tmp_path: Path, monkeypatch
) -> None:
    shutil.copy(EXAMPLES / "ab.json", tmp_path)
    monkeypatch.setenv("SPECOPS_PROMETHEUS_HEADERS", "{no json")
    path = written(tmp_path, addresses={"prometheus": "http://127.0.0.1:9"})
    done = specops("diagnose", str(path), "--out", str(tmp_path), "--quiet", "--no-requests", "--json")
    seen = json.loads(done.stdout)["data"]["observations"]
    assert "SPECOPS_PROMETHEUS_HEADERS" in seen["missing"]["names"]
    assert "ab.json is not used" in seen["missing"]["compared"]


def test_a_rollout_of_which_nothing_is_known_is_undecided_and_a_wrong_symptom_is_usage(
    tmp_path: Path,
) -> None:
    path = written(tmp_path)
    done = specops("diagnose", str(path), "--out", str(tmp_path), "--quiet", "--symptom", "slower")
    assert done.returncode == 4, done.stderr
    assert "nothing was observed" in done.stdout.lower()
    assert "bursts" not in done.stdout
    done = specops("diagnose", str(path), "--out", str(tmp_path), "--symptom", "slow")
    assert done.returncode == 2
    assert "expected slower, acceptance" in done.stderr
    assert "--symptom slower" in done.stderr


def test_a_server_that_makes_tokens_and_drafts_none_is_named_without_a_prometheus(monkeypatch) -> None:
    def page(tokens: float, drafted: float) -> exposition.Scrape:
        text = (
            f"vllm:generation_tokens_total {tokens}\nvllm:e2e_request_latency_seconds_count {tokens / 50}\n"
        )
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            text += f"vllm:spec_decode_num_{name}_total {drafted}\n"
        return exposition.parse(text)

    servers = [f"http://127.0.0.1:{port}/v1" for port in (8001, 8002, 8003)]
    # It drafts; it drafts none; it has made too few tokens to tell.
    ends = ((5000, 3000), (5000, 0), (90, 0))
    pages = {url: [page(0, 0), page(*end)] for url, end in zip(servers, ends, strict=True)}
    monkeypatch.setattr(exposition, "scrape", lambda url, _: pages[url].pop(0))
    found = ScrapedPool(dict.fromkeys(servers, NOTHING)).live()
    assert isinstance(found, Live)
    assert found.not_drafting == ("127.0.0.1:8002",)


@pytest.mark.parametrize(("tree", "setting", "k"), [("ngram:3", "k=3", 3), ("ngram:4", None, None)])
def test_figures_of_the_sweep_are_of_the_deployed_setting_not_of_the_recommended(
    tmp_path: Path, tree: str, setting: str | None, k: int | None
) -> None:
    three = settings(3, 5)
    cells = swept({"k=3": 1.2, "k=5": 1.6}, three, noise=0)
    found = judged(three, loads(), cells)
    assert found.recommendation["setting"] == "k=5"
    stored = Measurements(cells=cells, failed=[], skipped=[], run="0a1b2c3d", spent_s=1.0)
    swept_ = Result(
        phase="sweep",
        verdict=found.verdict,
        reason=found.reason,
        summary=found.summary,
        recommendation=found.recommendation,
        settings={"settings": {one.name: one.pool.model_dump(mode="json") for one in three}},
        data=found.data | {"prompts": {"count": 48}, STORED: stored.model_dump(mode="json", by_alias=True)},
    )
    results.write(tmp_path / "sweep.json", swept_)
    pools = {"standard": {"engine": "embedded"}, "speculative": {"engine": "embedded"}}
    pools["speculative"] |= {"speculation": {"tree": tree}}  # type: ignore[dict-item]
    deployed = rollout(pools=pools)
    observed = run_folder.swept(deployed, RunFolder(tmp_path), measurements(deployed, tmp_path))
    assert isinstance(observed, SweepFigures)
    assert (observed.setting, observed.k, len(observed.per_position)) == (setting, k, k or 0)
    cost = draft.cost(Observations(rollout="r", sweep=observed))
    assert ("did not measure the deployed setting" in cost.message) == (setting is None)


def test_commands_of_the_result_name_the_rollout_file(tmp_path: Path) -> None:
    file = tmp_path / "my rollout.yaml"
    pools = {
        name: {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"} for name in POOLS
    }
    file.write_text(json.dumps({"rollout": "r", "pools": pools}))
    done = specops("diagnose", str(file), "--no-requests", "--json")
    assert "ROLLOUT" not in done.stdout
    for text in re.findall(
        r"specops sweep [^(;]*", done.stdout
    ):  # of pools that run, it takes what to compare
        assert "--attach" in text, text
    fixes = [one["fix"] for one in json.loads(done.stdout)["data"]["findings"] if one["fix"]]
    named = [shlex.split(fix, comments=True) for fix in fixes if fix.startswith("specops ")]
    assert any(str(file) in words for words in named), "with its space, as one word"
    page = specops("diagnose", str(file), "--no-requests").stdout
    assert f"'{file}'" in page
    assert "ROLLOUT" not in page
