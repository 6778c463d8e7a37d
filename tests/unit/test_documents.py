"""What the terminal says of a result, its page says: one document of each kind, in all its forms."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from calling import specops
from made_cells import cell, row
from made_contests import refereed
from made_monitoring import ADDRESSES
from made_predictions import predicted
from made_runs import compared
from test_estimate import made_estimate
from test_run_page import CHECK, canary, checklist, item
from test_sweep_page import result as swept

from specops import results
from specops.assets import asset
from specops.cli.output import folded
from specops.config import Rollout
from specops.load.arrivals import Level
from specops.load.record import by_class, by_level, errors
from specops.phases import launch, route
from specops.phases.canary.document import document as canary_document
from specops.phases.diagnose import diagnose
from specops.phases.diagnose.observations import Observations
from specops.phases.monitor import render as monitor
from specops.phases.route.document import RULES
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.document import document as run_page
from specops.phases.run_page.result import _DOCUMENTS
from specops.phases.verify_draft.document import document as verify_draft
from specops.phases.verify_draft.pair import VerifySettings
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.render.report.document import Curve, Document, Line, Section, Step, Table, text_of
from specops.render.report.formats import html, markdown
from specops.render.report.terminal import grid, terminal
from specops.results import Result

PAIR = asset("playbooks", "embedded")


def measured() -> Result:
    """A baseline of two classes at two loads."""
    cells = [
        cell(
            [row(f"p{n}", name, 100.0 + n) for n in range(24) for name in ("edit", "long")],
            Level(concurrency=streams),
            0,
        )
        for streams in (1, 4)
    ]
    data = {
        "cells": [one.model_dump(mode="json", by_alias=True) for one in cells],
        "run": "abcd",
        "prompts": {"count": 48},
        "percentiles": "linear",
        "endpoint": {},
        "errors": errors(cells).model_dump(mode="json"),
        "by_concurrency": [level.model_dump(mode="json") for level in by_level(cells)],
        "by_class": {
            name: [level.model_dump(mode="json") for level in levels]
            for name, levels in by_class(cells).items()
        },
        "acceptance": None,
        "acceptance_missing": "the server exposes no counters",
        "steadiness": [],
    }
    return Result(phase="baseline", verdict="yes", reason="measured 96 requests in 2 cells", data=data)


def judged() -> Result:
    settings = VerifySettings(target=str(PAIR / "target"), draft=str(PAIR / "draft"), engine="embedded")
    return verify(settings, None, SilentProgress())


def estimated() -> Result:
    pair = judged()
    return pair.model_copy(
        update={"data": pair.data | {"estimate": made_estimate(0.9).model_dump(mode="json")}}
    )


def unknown() -> Result:
    return diagnose(Observations(rollout="made", missing={"live": "nobody was asked"}))


def drilled() -> Result:
    switches = {
        name: {
            "percent": percent,
            "took_ms": 2.4,
            "unconfirmed": None,
            "targets": [],
            "begun": {"standard": 12.0},
            "watched_s": 2.0,
        }
        for name, percent in (("fallback", 0), ("restoration", 100))
    }
    data = switches | {"before": [], "ended": {"well": 43.0, "lost": 1.0}, "took_s": 1.0, "limit_s": 60.0}
    return Result(phase="guard-drill", verdict="no", reason="1 of 44 requests was lost", data=data)


def names_missing() -> Result:
    present = {"name": "a", "where": "router", "needs": "traffic", "status": "there", "age_s": 6.0}
    renamed = present | {"name": "b", "status": "renamed", "now_called": "c", "fix": "set monitor.names"}
    names = [dict.fromkeys(("now_called", "fix")) | state for state in (present, renamed)]
    return Result(
        phase="monitor-check",
        verdict="no",
        reason="1 of 2 names is missing",
        settings={"prometheus": "http://p:9090"},
        data={"names": names},
    )


def cases_tried() -> Result:
    right = {
        "name": "long",
        "expected": "speculative",
        "pool": "speculative",
        "reason": "long",
        "wrong": None,
    }
    wrong = right | {"name": "short", "pool": "standard", "wrong": "expected the speculative pool"}
    tried = [{"traffic_class": "default"} | case for case in (right, wrong)]
    return Result(
        phase="route-check", verdict="no", reason="1 of 2 requests went wrong", data={"tried": tried}
    )


def simulated() -> Result:
    figures = {
        name: {"mean": mean}
        for name, mean in (
            *(("itl_ms", 23.4), ("itl_p95_ms", 41.0), ("tokens_per_s", 88.0)),
            *(("idle", 0.31), ("batch", 1.2), ("hit_rate", 0.62), ("taken", 0.44)),
        )
    }
    plan = {"setting": {"depth": "included:4"}, "figures": figures}
    ratios = {"itl_ratio": 0.87, "throughput_ratio": 1.53, "cost_ratio": 1.21}
    data = {
        "itl_bound_ms": 26.5,
        "cells": [{"rtt_ms": 15.0, "clients": 2, **plan, **ratios}],
        "by_clients": [{"clients": 2, "server_only": plan, "autoregressive": plan}],
        "by_rtt": [{"rtt_ms": 15.0, "busy_from": None, "clients_carried": 2, "may_carry_more": True}],
        "break_even": [{"clients": 2, "rtt_ms": "ahead at all"}, {"clients": 4, "rtt_ms": 37.0}],
        "costs_from": "the options",
        "rounds": {"source": "0.8 at every level"},
    }
    settings = {"heads": 8, "ahead": 16, "nodes": 32, "batching": "dynamic"}
    settings |= {"server_per_hour": 5.05, "edge_per_hour": 0.35}
    reason = "simulated: at 15 ms, inter-token latency is 0.87 times server-only's"
    return Result(phase="edge_simulate", verdict="yes", reason=reason, settings=settings, data=data)


def rendered(kind: str) -> Result:
    """The files of a rollout whose pools are started, watched and routed to."""
    pool = {"engine": "vllm", "model": "org/m", "version": "0.32.0", "arguments": ["--enforce-eager"]}
    ngram = {"speculation": {"method": "ngram", "num_speculative_tokens": 3}}
    pools = {"standard": pool, "speculative": pool | ngram}
    rollout = Rollout.model_validate({"rollout": "made", "pools": pools, "addresses": ADDRESSES})
    with TemporaryDirectory() as folder:
        if kind == "launch":
            return launch.render(rollout, Path(folder), SilentProgress())
        if kind == "route":
            return route.render(rollout, Path(folder))
        return monitor.render(rollout, Path(folder), SilentProgress())


KINDS: dict[str, Callable[[], Result]] = {
    "ab": lambda: compared(lambda arm, name: 1.0 if arm == "standard" or name == "edit" else 2.0, noise=0.2),
    "baseline": measured,
    "sweep": lambda: swept({"k=3": 0.8, "k=5": 1.6}),
    "canary": lambda: canary(CHECK, CHECK | {"name": "stop", "status": "pass"}, verdict="no"),
    "checklist": lambda: checklist(item("speedup", "open", decide="specops run r.yaml"), item("b", "passed")),
    "diagnose": unknown,
    "edge_simulate": simulated,
    "guard-drill": drilled,
    "launch": lambda: rendered("launch"),
    "monitor": lambda: rendered("monitor"),
    "monitor-check": names_missing,
    "route": lambda: rendered("route"),
    "route-check": cases_tried,
    "predict": predicted,
    "referee": refereed,
    "verify-draft": judged,
    "verify-draft --measure": estimated,
}


def findings(document: Document) -> Iterator[str]:
    """Everything that a document says of a result: its answer, its figures, each cell that has a state, its
    sentences and its commands."""
    yield from (document.headline, *map(text_of, document.summary))
    for tile in document.tiles:
        yield from (tile.label, tile.value, tile.note)
    for section in document.sections:
        yield from (section.title, *section.text)
        for table in section.tables:
            for place, name in enumerate(table.columns[1:], start=1):
                yield name if any(text_of(cells[place]) for cells in table.rows) else ""
            yield table.note
            yield from (text_of(one) for cells in table.rows for one in cells)
        yield from (text for step in section.steps for text in (step.action, step.command))
    yield from (text for step in document.steps for text in (step.action, step.command, step.why))


def plain(text: str) -> str:
    return "".join(text.split()).lower()


def words_of_page(document: Document) -> str:
    """The words of the HTML page, without those of its charts and styles."""
    page = re.sub(r"<(style|svg)\b.*?</\1>", " ", html(document), flags=re.DOTALL)
    return plain(markup.unescape(re.sub(r"<[^>]+>", " ", page)))


def words_of_markdown(document: Document) -> str:
    return plain(re.sub(r"\\([\\`*_\[\]<>|])", r"\1", markdown(document)))


def words_of_terminal(document: Document, width: int) -> str:
    pieces = [piece for line in terminal(document, width) for piece in folded(line, width or 10_000)]
    return plain(" ".join(pieces))


@pytest.mark.parametrize("kind", KINDS)
def test_the_terminal_and_the_page_say_the_same_of_a_result(kind: str) -> None:
    result = KINDS[kind]()
    document = _DOCUMENTS[result.phase](result, Path(f"{result.phase}.json"))
    said = [text for text in findings(document) if text]
    assert len(said) > 10, "a document without findings compares nothing"
    forms = {
        "page": words_of_page(document),
        "Markdown": words_of_markdown(document),
        **{f"terminal of {width}": words_of_terminal(document, width) for width in (0, 80, 120)},
    }
    for form, words in forms.items():
        assert [text for text in said if plain(text) not in words] == [], form


def strings(value: object) -> Iterator[str]:
    """Each text within the values of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def test_what_was_rendered_is_said_whole() -> None:
    monitored, routed, launched = map(rendered, ("monitor", "route", "launch"))
    parts = {name: monitored.data[name] for name in ("targets", "left_out", "not_read")}
    alerts = [(name, alert["source"]) for name, alert in monitored.data["alerts"].items()]
    texts = [*strings(parts), *parts["targets"], *parts["left_out"], *chain(*alerts)]
    rules = {name: routed.data[name] for name in ("standard", "speculative", "limits", "notes")}
    rules["rules"] = [routed.data["rules"][name] for name in (*RULES, "classes", "unsupported")]
    pools = [
        [pool["engine"], pool["findings"], pool["unknown"], pool["left_out"], pool["judged"],
         [(chosen["name"], chosen["value"]) for chosen in pool["conditions"]]]
        for pool in launched.data["pools"].values()
    ]  # fmt: skip
    for result, expected in (
        (monitored, texts),
        (routed, [*strings(rules)]),
        (launched, [*strings(pools), *launched.data["files"]]),
    ):
        words = words_of_terminal(_DOCUMENTS[result.phase](result, Path("it.json")), 0)
        assert len(expected) > 5
        assert [text for text in expected if plain(text) not in words] == [], result.phase


def test_each_kind_of_result_with_a_document_is_compared() -> None:
    assert {kind.partition(" ")[0] for kind in KINDS} == set(_DOCUMENTS) - {"lint"}


@pytest.mark.parametrize("kind", ["ab", "canary", "checklist", "referee", "sweep"])
def test_the_page_of_a_run_has_what_the_phase_says(kind: str) -> None:
    """Only the answer, the steps and the notes on how to read a table differ: those of a run are its own."""
    result = KINDS[kind]()
    own = _DOCUMENTS[kind](result, Path(f"{kind}.json"))
    words = words_of_page(run_page(RunFolder.of_result(result)))
    cells = [
        text_of(one)
        for section in own.sections
        for table in section.tables
        for cells in table.rows
        for one in cells
    ]
    assert cells
    assert [text for text in cells if plain(text) not in words] == []


def test_a_command_prints_the_document_of_its_result(tmp_path: Path) -> None:
    out = tmp_path / "drafts.json"
    words = ("verify-draft", str(PAIR / "target"), str(PAIR / "draft"), "--engine", "embedded")
    done = specops(*words, "--out", str(out), "--quiet")
    assert done.stdout.splitlines() == list(terminal(verify_draft(results.read(out), out)))


TABLE = Table("", ("name", "end to end", "verdict", "why"), (("edit", "1.50×", "pays", "fast"),), prose=(3,))


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, ["name  end to end  verdict  why", "edit  1.50×       pays     fast"]),
        (60, ["name  end to end  verdict  why", "edit  1.50×       pays     fast"]),
        (40, ["name  end to end  verdict", "edit  1.50×       pays", "  why: fast"]),
        (22, ["name", "  end to end  verdict", "edit", "  1.50×       pays", "  why: fast"]),
        (18, ["edit", "  end to end 1.50×", "  verdict pays", "  why fast"]),
    ],
)
def test_a_table_fits_the_width(width: int, lines: list[str]) -> None:
    assert list(grid(TABLE, width)) == lines


def test_a_table_without_sentences_is_turned() -> None:
    table = Table("", ("arm", "ms a token", "TTFT ms"), (("edge, 64 heads", "47.0", "164.8"),))
    assert list(grid(table, 32)) == ["arm         edge, 64 heads", "ms a token  47.0", "TTFT ms     164.8"]


def test_what_is_pasted_has_nothing_before_it() -> None:
    step = Step("compare both pools", "", 'BASE_URL="${BASE_URL:-http://a/v1}"\ncurl -sS "$BASE_URL/x"\n')
    section = Section("Conformance", steps=(step,))
    document = Document("canary", "", "bad", "failed", "It fails.", sections=(section,))
    assert list(terminal(document))[3:6] == [
        "change: compare both pools", 'BASE_URL="${BASE_URL:-http://a/v1}"', 'curl -sS "$BASE_URL/x"',
    ]  # fmt: skip
    assert '\n```\nBASE_URL="${BASE_URL:-http://a/v1}"\ncurl -sS "$BASE_URL/x"\n```\n' in markdown(document)


def test_steps_are_numbered_as_on_the_page_where_there_are_several() -> None:
    change = Step("add prompts", "speedup", "specops run r.yaml")
    steps = (change, Step("", "runbook", "specops checklist r.yaml"))
    document = Document("checklist", "", "open", "undecided", "Not ready.", steps=steps)
    assert list(terminal(document))[-3:] == [
        "1. change: add prompts",
        "   next: specops run r.yaml  # speedup",
        "2. next: specops checklist r.yaml  # runbook",
    ]
    alone = replace(document, steps=steps[:1])
    assert list(terminal(alone))[-2:] == ["change: add prompts", "next: specops run r.yaml  # speedup"]


def test_acceptance_by_position_is_drawn_with_characters() -> None:
    section = Section("Acceptance", charts=(Curve("by position", "", (Line("1 stream", (0.9, 0.5, 0.1)),)),))
    document = Document("ab", "", "good", "passed", "It pays.", sections=(section,))
    assert "  1 stream  █▅▁" in terminal(document)


def test_a_run_folds_what_is_long_and_a_result_is_whole() -> None:
    result = KINDS["canary"]()
    own = canary_document(result, Path("canary.json"))
    whole, short = "\n".join(terminal(own)), "\n".join(terminal(run_page(RunFolder.of_result(result))))
    assert "  stop " in whole
    assert "  stop " not in short
    assert "  1 check passed" in short
