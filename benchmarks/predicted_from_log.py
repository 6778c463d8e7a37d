"""`specops predict` against the engine and against `specops ab`, in one run.

    python benchmarks/predicted_from_log.py [--requests 200] [--json FILE]

Two figures:

- speed: tokens of this checkout's sources, as logged prompts and answers, that one core predicts in a minute,
  every K of n-grams from 1 to 16 together, and suffix trees of four sizes
- error: the shipped target with n-grams, one thread, at two levels. One comparison measures all arms over all
  prompts. Costs of steps are fitted to one half of the prompts, and to the largest K alone; the standard's
  answers to the other half are the log. Its speed-ups are predicted, and compared with those that were
  measured over the same half. An error is predicted over measured, less one. Suffix trees are not compared:
  a comparison sends each prompt several times, and they copy the earlier answers to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

from tokenizers import Tokenizer

from specops.assets import asset
from specops.engine.planner.copied_acceptance import SuffixDrafts, ngram_drafts
from specops.experiment.arms import Arm
from specops.experiment.records import WindowRecord
from specops.load.record import Row
from specops.load.settings import BaselineSettings
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.phases.predict.acceptance import AnswerCounts, count_steps
from specops.phases.predict.batching import RequestWork
from specops.phases.predict.costs import STANDARD, fit, kind_of
from specops.progress import SilentProgress
from specops.render.figures import aligned
from specops.results import Result
from specops.serving import pool_of
from specops.serving.embedded import EmbeddedPool, Speculation

TREES = ("ngram:1", "ngram:2", "ngram:4", "ngram:6", "ngram:8")
FITTED = (STANDARD, "ngram:8")
LEVELS = (1, 4)
MAX_TOKENS = 96
"""Of each answer of the comparison."""

KS = tuple(range(1, 17))
SIZES = (4, 8, 16, 32)
PROMPT, ANSWER = 400, 800
"""Tokens of a logged exchange, cut from the sources."""


def exchanges() -> Iterator[tuple[list[int], list[int]]]:
    tokenizer = Tokenizer.from_file(str(asset("playbooks", "embedded", "target") / "tokenizer.json"))
    for path in sorted(Path(__file__).parents[1].glob("specops/**/*.py")):
        ids = tokenizer.encode(path.read_text(encoding="utf-8")).ids
        for start in range(0, len(ids) - PROMPT, PROMPT + ANSWER):
            text = ids[start : start + PROMPT + ANSWER]
            if len(text) > PROMPT:
                yield text[:PROMPT], text[PROMPT:]


def speed(most: int) -> dict[str, float]:
    """Millions of logged tokens a minute of one core."""
    chosen, tokens = [], 0
    for prompt, answer in exchanges():
        chosen.append((prompt, answer))
        tokens += len(prompt) + len(answer)
        if tokens >= most:
            break
    answered = sum(len(answer) for _, answer in chosen)
    started = process_time()
    for prompt, answer in chosen:
        drafts = ngram_drafts(prompt, answer, max(KS), len(answer))
        for k in KS:
            count_steps("", "", len(prompt), len(answer), drafts.steps(k))
    ngrams = process_time() - started
    trees, started = SuffixDrafts(SIZES), process_time()
    for prompt, answer in chosen:
        trees.steps(prompt, answer, len(answer))
    suffixes = process_time() - started
    minutes = {"n-grams": ngrams / 60, "suffix trees": suffixes / 60, "both": (ngrams + suffixes) / 60}
    return {name: tokens / 1e6 / spent for name, spent in minutes.items()} | {
        "both, answers alone": answered / 1e6 / minutes["both"]
    }


def compared(requests: int, logs: Path) -> Result:
    target = asset("playbooks", "embedded") / "target"

    def arm(name: str, speculation: Speculation | None) -> Arm:
        return Arm(name, EmbeddedPool(engine="embedded", target=target, threads=1, speculation=speculation))

    arms = [arm(STANDARD, None), *(arm(tree, Speculation(tree=tree)) for tree in TREES)]
    settings = BaselineSettings(
        base_url=NO_ADDRESS_YET,
        model="",
        endpoint="completions",
        concurrency=LEVELS,
        max_tokens=MAX_TOKENS,
        same_prompts=True,
    )
    plan = AbSettings(looks=1, mixed_prompts=0, requests=requests, min_duration_s=0.0)
    return compare(arms, settings, plan, SilentProgress(), logs=logs)


def halved(windows: list[WindowRecord], half: int) -> list[WindowRecord]:
    """The windows with the rows of every second prompt."""
    names = sorted({row.prompt for window in windows for row in window.cell.rows})
    chosen = set(names[half::2])

    def with_rows(window: WindowRecord) -> WindowRecord:
        rows = tuple(row for row in window.cell.rows if row.prompt in chosen)
        return window.model_copy(update={"cell": window.cell.model_copy(update={"rows": rows})})

    return [with_rows(window) for window in windows if window.kind == "measured"]


def mean_ms(windows: list[WindowRecord], arm: str, streams: int) -> float:
    """End to end, each prompt's mean, over the prompts."""
    times: dict[str, list[float]] = {}
    for window in windows:
        if (window.arm, window.level.concurrency) == (arm, streams):
            for row in window.cell.rows:
                if row.error is None:
                    times.setdefault(row.prompt, []).append(row.e2e_ms)
    return statistics.fmean(statistics.fmean(own) for own in times.values())


def logged(windows: list[WindowRecord]) -> list[Row]:
    """One answer of the standard to each prompt."""
    rows = {row.prompt: row for window in windows if window.arm == STANDARD for row in window.cell.rows}
    return [row for row in rows.values() if row.error is None and row.tokens]


def errors(result: Result) -> list[dict[str, Any]]:
    windows = measurements_of(result, "the comparison").windows
    pools = {name: pool_of(stored) for name, stored in result.settings["arms"].items()}
    fitted_half, tested_half = (halved(windows, half) for half in (0, 1))
    costs = fit(
        ((pools[window.arm], window.cell) for window in fitted_half if window.arm in FITTED), "one half"
    )
    if costs is None:
        raise SystemExit("the costs could not be fitted: too few requests")
    tokenizer = Tokenizer.from_file(str(asset("playbooks", "embedded", "target") / "tokenizer.json"))
    prompts = {
        item["id"]: item["text"]
        for item in json.loads((asset("playbooks", "embedded") / "prompts.json").read_text(encoding="utf-8"))
    }
    texts = []
    for row in logged(tested_half):
        ids = tokenizer.encode(row.text).ids
        if row.tokens in (len(ids), len(ids) + 1):
            end = [-1] * ((row.tokens or 0) - len(ids))
            texts.append((row.prompt, tokenizer.encode(prompts[row.prompt]).ids, [*ids, *end]))
    known = {name for name, _, _ in texts}
    tested = [
        window.model_copy(
            update={
                "cell": window.cell.model_copy(
                    update={"rows": tuple(row for row in window.cell.rows if row.prompt in known)}
                )
            }
        )
        for window in tested_half
    ]
    sizes = [int(tree.partition(":")[2]) for tree in TREES]
    counts: dict[str, list[AnswerCounts]] = {tree: [] for tree in TREES}
    for name, prompt, answer in texts:
        drafts = ngram_drafts(prompt, answer, max(sizes), MAX_TOKENS)
        for tree, k in zip(TREES, sizes, strict=True):
            counts[tree].append(count_steps(name, "", len(prompt), len(answer), drafts.steps(k)))
    cells = []
    for tree in TREES:
        kind = kind_of(pools[tree])
        assert kind is not None
        for streams in LEVELS:
            standard, drafted = (
                next(level for level in costs.by_kind[name] if level.streams == streams)
                for name in (STANDARD, kind[0])
            )
            work = RequestWork.of_counts(counts[tree])
            before, after = work.without_drafts().times_ms(standard), work.times_ms(drafted)
            predicted = float((before[0] + before[1]).sum() / (after[0] + after[1]).sum())
            measured = mean_ms(tested, STANDARD, streams) / mean_ms(tested, tree, streams)
            error = predicted / measured - 1
            cells.append(
                {
                    "setting": tree,
                    "streams": streams,
                    "predicted": predicted,
                    "measured": measured,
                    "error": error,
                }
            )
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200, help="pairs of requests of the comparison")
    parser.add_argument("--tokens", type=int, default=200_000, help="logged tokens of the speed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rates = speed(options.tokens)
    print(
        "\n".join(
            aligned(
                [["logged tokens a minute of one core", "millions"]]
                + [[name, f"{rate:.2f}"] for name, rate in rates.items()]
            )
        ),
        flush=True,
    )
    with tempfile.TemporaryDirectory() as logs:
        cells = errors(compared(options.requests, Path(logs)))
    rows = [["setting", "streams", "predicted", "measured", "error"]]
    for cell in cells:
        rows.append(
            [
                cell["setting"],
                str(cell["streams"]),
                f"{cell['predicted']:.2f}×",
                f"{cell['measured']:.2f}×",
                f"{cell['error']:+.1%}",
            ]
        )
    print("\n".join(aligned(rows)))
    sizes = sorted(abs(cell["error"]) for cell in cells)
    print(f"absolute error  median {statistics.median(sizes):.1%}, worst {sizes[-1]:.1%}, {len(sizes)} cells")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"speed": rates, "cells": cells}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
