"""What the API costs, and what batching and the prefix cache bring, on the shipped pair.

    python benchmarks/serving.py [--prompts 8] [--repeats 5] [--json FILE] [--pair DIR]

Held-out prompts as token ids, the last 128 tokens in, 64 out, greedy, float32, one thread for the engine.

(a) One request at a time: `specops serve`, streaming over HTTP, beside the same engine in this process.
    Each prompt is taken by both in turn; the figure is the ratio of their summed medians.
(b) `specops serve --no-speculation`: tokens per second with 8 streams over that with 1, taken in turn.
(c) Conversations of five turns, in this process: the time to the first token of the turns after the first,
    with the prefix cache over without. Each turn is taken by both engines, one after the other.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from specops.assets import asset
from specops.engine import Sampling, load_engine
from specops.launch.servers import LoggedAddress, running
from specops.load.workload import load_prompts
from specops.progress import SilentProgress
from specops.serving.embedded import ANNOUNCED, EmbeddedPool, Speculation

PROMPT_TOKENS, TOKENS, STREAMS = 128, 64, 8
TURNS, TURN_TOKENS = 5, 80  # the first prompt has PROMPT_TOKENS; each later one so many more
TREE = "chain:3"


class Client:
    """One kept-alive connection that streams a completion and keeps its token ids."""

    def __init__(self, base_url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(base_url).netloc)

    def run(self, prompt: list[int]) -> list[int]:
        body = {
            "prompt": prompt,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        self._connection.request("POST", "/v1/completions", json.dumps(body))
        with self._connection.getresponse() as response:
            assert response.status == 200, response.read()
            events = [line[len(b"data: ") :] for line in response if line.startswith(b"data: ")]
        return [token for event in events[:-1] for token in json.loads(event)["choices"][0]["token_ids"]]


def api_cost(pair: Path, prompts: list[list[int]], repeats: int, logs: Path) -> dict[str, Any]:
    engine = load_engine(pair / "target", pair / "draft", tree=TREE, max_batch=STREAMS, threads=1)
    sampling = Sampling(max_tokens=TOKENS, ignore_eos=True)
    speculation = Speculation(draft=pair / "draft", tree=TREE)
    pool = EmbeddedPool(
        engine="embedded", target=pair / "target", speculation=speculation, max_batch=STREAMS, threads=1
    )
    with running(
        "speculative",
        pool.start(0, "pair").words,
        address=LoggedAddress(ANNOUNCED),
        log=logs / "speculative.log",
        progress=SilentProgress(),
    ) as server:
        arms: dict[str, Callable[[list[int]], list[int]]] = {
            "in process": lambda prompt: engine.generate(prompt, sampling).tokens,
            "over HTTP": Client(server.base_url).run,
        }
        seconds: dict[str, list[list[float]]] = {name: [[] for _ in prompts] for name in arms}
        same = 0
        for repeat in range(-1, repeats):  # the first pass warms up
            for number, prompt in enumerate(prompts):
                outputs = []
                for name, run in arms.items():
                    started = perf_counter()
                    outputs.append(run(prompt))
                    elapsed = perf_counter() - started
                    if repeat >= 0:
                        seconds[name][number].append(elapsed)
                same += outputs[0] == outputs[1]
    totals = {name: sum(map(statistics.median, times)) for name, times in seconds.items()}
    chunks = engine.counters.steps / (repeats + 1)  # of all prompts; a step is a chunk
    return {
        "request_ms": {name: total / len(prompts) * 1000 for name, total in totals.items()},
        "ratio": totals["over HTTP"] / totals["in process"],
        "ms_per_chunk": (totals["over HTTP"] - totals["in process"]) / chunks * 1000,
        "same_tokens": f"{same}/{len(prompts) * (repeats + 1)}",
    }


def batching(pair: Path, prompts: list[list[int]], repeats: int, logs: Path) -> dict[str, Any]:
    pool = EmbeddedPool(engine="embedded", target=pair / "target", max_batch=STREAMS, threads=1)
    with running(
        "standard",
        pool.start(0, "pair").words,
        address=LoggedAddress(ANNOUNCED),
        log=logs / "standard.log",
        progress=SilentProgress(),
    ) as server:
        clients = [Client(server.base_url) for _ in range(STREAMS)]

        def one_stream() -> int:
            return len(clients[0].run(prompts[0]))

        def all_streams() -> int:
            with ThreadPoolExecutor(STREAMS) as pool:
                runs = [
                    pool.submit(client.run, prompts[number % len(prompts)])
                    for number, client in enumerate(clients)
                ]
                return sum(len(run.result()) for run in runs)

        rates: dict[str, list[float]] = {"1": [], str(STREAMS): []}
        for repeat in range(-1, repeats):
            for name, run in (("1", one_stream), (str(STREAMS), all_streams)):
                started = perf_counter()
                tokens = run()
                if repeat >= 0:
                    rates[name].append(tokens / (perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {"tokens_per_s": medians, "ratio": medians[str(STREAMS)] / medians["1"]}


def later_turns(pair: Path, conversations: list[list[int]]) -> dict[str, Any]:
    """conversations: the tokens of each, of which a turn's prompt is the beginning."""
    options: dict[str, Any] = {"tree": TREE, "max_batch": 1, "threads": 1}
    engines = {
        name: load_engine(pair / "target", pair / "draft", prefix_cache_mb=size, **options)
        for name, size in {"without": 0, "with": 64}.items()
    }
    for engine in engines.values():
        engine.generate(conversations[0][::-1], Sampling(max_tokens=2))  # the first passes are slow
    seconds: dict[str, list[list[float]]] = {name: [[] for _ in range(TURNS)] for name in engines}
    restored = tokens = 0
    for number, conversation in enumerate(conversations):
        for turn in range(TURNS):
            prompt = conversation[: PROMPT_TOKENS + turn * TURN_TOKENS]
            for name in sorted(engines, reverse=bool((number + turn) % 2)):
                started = perf_counter()
                first = next(engines[name].stream(prompt, Sampling(max_tokens=TOKENS)))
                seconds[name][turn].append(perf_counter() - started)
                restored += first.restored or 0
            tokens += len(prompt)
    medians = {name: [statistics.median(times) for times in turns] for name, turns in seconds.items()}
    return {
        "first_token_ms": {name: [time * 1000 for time in times] for name, times in medians.items()},
        "ratio": sum(medians["with"][1:]) / sum(medians["without"][1:]),
        "first_turn_ratio": medians["with"][0] / medians["without"][0],
        "restored": restored / tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=8, help="spread over the shipped set")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--pair", type=Path, help="another folder with target/, draft/ and prompts.json")
    options = parser.parse_args()
    pair = options.pair or asset("playbooks", "embedded")

    tokenizer = load_engine(pair / "target", speculate=False, max_batch=1).tokenizer
    texts = [str(prompt.content) for prompt in load_prompts(pair / "prompts.json").prompts]
    encoded = [tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts]
    prompts = [encoded[number * len(encoded) // options.prompts] for number in range(options.prompts)]

    whole = tokenizer.encode("\n".join(texts))
    length = PROMPT_TOKENS + (TURNS - 1) * TURN_TOKENS
    conversations = [whole[start : start + length] for start in range(0, len(whole) - length, length)]

    turns = later_turns(pair, conversations)
    with tempfile.TemporaryDirectory() as logs:
        cost = api_cost(pair, prompts, options.repeats, Path(logs))
        batch = batching(pair, prompts, options.repeats, Path(logs))
    print(f"{'':28}{'measured':>12}{'to reach':>12}")
    for name, value in cost["request_ms"].items():
        print(f"{'a request ' + name:28}{value:9.1f} ms")
    print(f"{'  over HTTP / in process':28}{cost['ratio']:11.2f}×{'≤ 1.10×':>12}")
    print(f"{'  the API, each chunk':28}{cost['ms_per_chunk']:9.3f} ms")
    print(f"{'  same tokens':28}{cost['same_tokens']:>12}")
    for name, value in batch["tokens_per_s"].items():
        print(f"{'autoregressive, ' + name + ' at a time':28}{value:7.0f} tok/s")
    print(f"{f'  {STREAMS} streams / 1':28}{batch['ratio']:11.2f}×{'≥ 2.00×':>12}")
    for name, times in turns["first_token_ms"].items():
        print(f"{'first token, ' + name + ' cache':28}" + "".join(f"{time:8.1f}" for time in times) + " ms")
    print(f"{'  turns 2 to 5, with / without':28}{turns['ratio']:10.2f}×")
    print(f"{'  turn 1, with / without':28}{turns['first_turn_ratio']:11.2f}×")
    print(f"{'  restored of all tokens':28}{turns['restored']:12.0%}")
    if options.json is not None:
        figures = {"api_cost": cost, "batching": batch, "later_turns": turns}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
