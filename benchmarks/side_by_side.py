"""The embedded engine beside real vLLM on the shipped pair, served over HTTP and asked by the same client.

    python benchmarks/side_by_side.py --vllm .venv-vllm/bin/python [--prompts 16] [--repeats 5] [--json FILE]

Held-out prompts as token ids, the last 128 tokens in, 64 out, greedy, float32, one thread. The embedded
settings stay up throughout; vLLM's are started in turn, for two of its servers would share a core. In each
turn every server that is up is given all prompts, one server after the other, the first one going last the
next time: a server's speed is its median over these rounds, and a ratio the median of the rounds' ratios,
so that both of its sides were measured within seconds of each other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from specops.assets import asset
from specops.config import Pool
from specops.launch.pools import serving
from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.runner import run_cell, warm_up
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt, load_prompts
from specops.progress import Silent
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool, Speculation

PROMPT_TOKENS, TOKENS, K = 128, 64, 3
STREAMS = (1, 4, 8, 16)
TO_REACH = {1: 1.2, 8: 1.0}
MODEL = "pair"


@dataclass(frozen=True)
class Setting:
    engine: str
    name: str
    pool: Pool
    speculates: bool

    def __str__(self) -> str:
        return f"{self.engine} {self.name}"


@dataclass
class Rounds:
    """Tokens a second of every server that was up, by streams, one number a round."""

    rates: dict[Setting, dict[int, list[float]]] = field(default_factory=dict)
    answers: dict[Setting, dict[str, str]] = field(default_factory=dict)
    """The greedy texts at one stream, by prompt."""

    def rate(self, setting: Setting, streams: int) -> float:
        return statistics.median(self.rates[setting][streams])


def embedded(pair: Path) -> list[Setting]:
    def pool(tree: str | None) -> EmbeddedPool:
        speculation = Speculation(draft=pair / "head", tree=tree) if tree else None
        return EmbeddedPool(
            engine="embedded",
            target=pair / "target",
            speculation=speculation,
            max_batch=max(STREAMS),
            threads=1,
        )

    trees = (None, "chain:2", "ngram:8", "ngram:8/chain:2", "auto")
    return [Setting("embedded", tree or "off", pool(tree), tree is not None) for tree in trees]


def vllm(python: Path, pair: Path) -> list[Setting]:
    """As its log recommends: with Intel's OpenMP, which its environment has. Eager, as no GPU is there."""
    environment = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    if openmp.exists():
        environment["LD_PRELOAD"] = str(openmp)
    # Not `vllm serve`, which looks for a distribution called vllm: the build for CPUs is called vllm-cpu.
    server = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    server += ["--port", "{port}", "--model", str(pair / "target"), "--served-model-name", MODEL]
    server += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", str(max(STREAMS))]
    # The same prompts come again and again, and the embedded engine does not remember them either.
    server += ["--no-enable-prefix-caching"]

    def pool(speculation: dict[str, Any] | None) -> CommandPool:
        assigned = [f"{name}={value}" for name, value in environment.items()]
        chosen = ["--speculative-config", json.dumps(speculation)] if speculation else []
        return CommandPool(engine="command", command=shlex.join(["env", *assigned, *server, *chosen]))

    ngram = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    draft = {"method": "draft_model", "num_speculative_tokens": K, "model": str(pair / "draft")}
    configurations = {"off": None, f"draft_model {K}": draft, f"ngram {K}": ngram}
    return [Setting("vLLM", name, pool(chosen), bool(chosen)) for name, chosen in configurations.items()]


@contextmanager
def up(settings: Sequence[Setting], logs: Path) -> Iterator[dict[Setting, str]]:
    """The base URLs of the settings' servers."""
    with ExitStack() as servers:
        yield {
            setting: servers.enter_context(
                serving(
                    setting.pool, str(setting), model=MODEL, log=logs / f"{setting}.log", progress=Silent()
                )
            ).base_url
            for setting in settings
        }


async def ask(base_urls: dict[Setting, str], prompts: Sequence[Prompt], repeats: int) -> Rounds:
    rounds, pace = Rounds(), Pace(None)
    decoding = Decoding(ignore_eos=True, max_tokens=TOKENS)
    async with AsyncExitStack() as stack:
        clients = {
            setting: await stack.enter_async_context(
                Client(Endpoint(base_url, MODEL, "completions"), decoding)
            )
            for setting, base_url in base_urls.items()
        }
        for client in clients.values():
            await client.probe(prompts[0])
        for client, streams in product(clients.values(), STREAMS):
            await warm_up(client, prompts, max(4, streams), Level(streams), pace)
        for repeat, streams in product(range(repeats), STREAMS):
            order = list(clients) if repeat % 2 == 0 else list(clients)[::-1]
            asked = [prompts[number % len(prompts)] for number in range(max(len(prompts), streams))]
            for setting in order:
                cell = await run_cell(
                    clients[setting], asked, Level(streams), repeat, seed=0, pace=pace, progress=Silent()
                )
                tokens = [observation.answer.tokens for observation in cell.observations]
                if tokens != [TOKENS] * len(asked):
                    raise SystemExit(f"{setting} answered with {tokens} tokens, and not with {TOKENS} each")
                rates = rounds.rates.setdefault(setting, {}).setdefault(streams, [])
                rates.append(TOKENS * len(asked) / cell.wall_s)
                if streams == 1:
                    texts = {o.prompt: o.answer.text for o in cell.observations}
                    rounds.answers.setdefault(setting, texts)
    return rounds


def best(turns: Sequence[Rounds], engine: str, streams: int, *, speculating: bool) -> tuple[Setting, Rounds]:
    """The engine's fastest setting, and the turn in which it was so."""
    candidates = [
        (setting, turn)
        for turn in turns
        for setting in turn.rates
        if setting.engine == engine and (setting.speculates or not speculating)
    ]
    return max(candidates, key=lambda candidate: candidate[1].rate(candidate[0], streams))


def compared(turns: Sequence[Rounds], streams: int, *, speculating: bool) -> dict[str, Any]:
    """The embedded engine's best over vLLM's best, in the turn in which that was up."""
    theirs, turn = best(turns, "vLLM", streams, speculating=speculating)
    ours, _ = best([turn], "embedded", streams, speculating=speculating)
    pairs = zip(turn.rates[ours][streams], turn.rates[theirs][streams], strict=True)
    ratios = [our / their for our, their in pairs]
    return {
        "streams": streams,
        "embedded": ours.name,
        "vllm": theirs.name,
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "to_reach": TO_REACH[streams],
    }


def table(turns: Sequence[Rounds]) -> list[dict[str, Any]]:
    """A line for each setting; an embedded one's figure is the median of all turns."""
    settings = list(dict.fromkeys(setting for turn in turns for setting in turn.rates))
    reference = next(turn.answers[setting] for turn in turns for setting in turn.answers)
    lines = []
    for setting in settings:
        within = [turn for turn in turns if setting in turn.rates]
        rates = {
            streams: statistics.median(rate for turn in within for rate in turn.rates[setting][streams])
            for streams in STREAMS
        }
        same = sum(within[0].answers[setting][prompt] == text for prompt, text in reference.items())
        lines.append(
            {
                "setting": str(setting),
                "ms_per_token": 1000 / rates[1],
                "tokens_per_s": {str(streams): rate for streams, rate in rates.items()},
                "same_answers": f"{same}/{len(reference)}",
            }
        )
    return lines


def held_out(pair: Path, count: int) -> list[Prompt]:
    """Spread over the shipped set."""
    tokenizer = Tokenizer.from_file(str(pair / "target" / "tokenizer.json"))
    shipped = load_prompts(pair / "prompts.json").prompts
    chosen = [shipped[number * len(shipped) // count] for number in range(count)]
    ids = [tokenizer.encode(str(prompt.content)).ids[-PROMPT_TOKENS:] for prompt in chosen]
    return [Prompt(prompt.id, "all", tuple(tokens)) for prompt, tokens in zip(chosen, ids, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm", type=Path, required=True, help="the interpreter of a venv that has vLLM")
    parser.add_argument("--prompts", type=int, default=16, help="spread over the shipped set")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--pair", type=Path, help="another folder with target/, draft/ and prompts.json")
    options = parser.parse_args()
    pair = (options.pair or asset("playbooks", "embedded")).resolve()
    prompts = held_out(pair, options.prompts)

    turns = []
    with tempfile.TemporaryDirectory() as folder, up(embedded(pair), Path(folder)) as ours:
        for setting in vllm(options.vllm.absolute(), pair):
            with up([setting], Path(folder)) as theirs:
                turns.append(asyncio.run(ask(ours | theirs, prompts, options.repeats)))

    lines = table(turns)
    ratios = [compared(turns, 1, speculating=True), compared(turns, 8, speculating=False)]
    print(f"{'':20}{'ms a token':>12}{'tokens/s at 1':>15}{'4':>7}{'8':>7}{'16':>7}{'same answers':>14}")
    for line in lines:
        one, *more = line["tokens_per_s"].values()
        rest = "".join(f"{rate:7.0f}" for rate in more)
        print(f"{line['setting']:20}{line['ms_per_token']:12.2f}{one:15.0f}{rest}{line['same_answers']:>14}")
    for ratio in ratios:
        level = Level(ratio["streams"])
        print(f"{level}, best over best: embedded {ratio['embedded']} / vLLM {ratio['vllm']}", end=" ")
        spread = f"{ratio['lowest']:.2f}–{ratio['highest']:.2f}"
        print(f"{ratio['ratio']:.2f}× ({spread}; to reach ≥ {ratio['to_reach']:.2f}×)")
    if options.json is not None:
        figures = {"settings": lines, "ratios": ratios}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
