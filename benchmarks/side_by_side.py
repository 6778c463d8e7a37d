"""The embedded engine beside llama.cpp, real vLLM and Hugging Face, on the shipped pair and the same prompts.

    python benchmarks/side_by_side.py [--vllm .venv-vllm/bin/python] [--quick] [--threads 1] [--json FILE]

Held-out prompts as token ids, 128 and 384 in (the pair has 512 positions), 64 out, greedy, prompts
included in the time. Each engine in float32 and in the formats that it has besides: llama.cpp f16 and
q8_0, vLLM and Hugging Face bfloat16; the embedded engine computes in float32 on a CPU. With a draft model,
with n-grams (the embedded engine: its head and copies), and without. Servers are asked over HTTP by one
client; Hugging Face is called in this process, which spares it HTTP, and it speculates for one stream only.

The embedded settings stay up throughout, and the peers take turns beside them, a few at a time: more would
share a core. In each round every setting that is up is given all prompts, one after the other, the first one
going last the next time: a setting's speed is its median over these rounds, and a ratio the median of the
rounds' ratios, so that both of its sides were measured within seconds of each other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from specops.assets import asset
from specops.config import Pool
from specops.launch.servers import serving
from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.runner import run_cell, warm_up
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt, load_prompts
from specops.progress import SilentProgress
from specops.results import environment
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool, Speculation
from specops.serving.llamacpp.pool import LlamacppPool

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import to_gguf

LENGTHS = (128, 384)
TOKENS, K = 64, 3
STREAMS = (1, 4, 8)
OURS = "embedded"
MODEL = "pair"
TO_REACH = {("vLLM", 128, 1): 1.5, ("vLLM", 128, 8): 1.2}
Generate = Callable[[Sequence[Sequence[int]]], list[str]]
"""The texts of as many prompts as there are streams, in this process."""


@dataclass(frozen=True)
class Setting:
    engine: str
    format: str
    name: str
    pool: Pool | None = field(default=None, compare=False)
    generate: Generate | None = field(default=None, compare=False)
    streams: tuple[int, ...] = STREAMS

    def __str__(self) -> str:
        return f"{self.engine} {self.format}, {self.name}"


Cell = tuple[int, int]
"""Prompt tokens, streams."""


@dataclass
class Rounds:
    """What the settings of one turn did: tokens a second by cell, one number a round."""

    rates: dict[Setting, dict[Cell, list[float]]] = field(default_factory=dict)
    answers: dict[Setting, dict[str, str]] = field(default_factory=dict)
    """The greedy texts at one stream, by prompt."""

    def rate(self, setting: Setting, cell: Cell) -> float | None:
        rates = self.rates[setting].get(cell)
        return statistics.median(rates) if rates else None


def embedded(pair: Path, threads: int) -> list[Setting]:
    def pool(tree: str | None) -> EmbeddedPool:
        speculation = Speculation(draft=pair / "head", tree=tree) if tree else None
        return EmbeddedPool(
            engine="embedded",
            target=pair / "target",
            speculation=speculation,
            max_batch=max(STREAMS),
            threads=threads,
        )

    return [Setting(OURS, "f32", tree or "off", pool(tree)) for tree in (None, "ngram:8/chain:2", "auto")]


def llamacpp(pair: Path, threads: int, kind: str, folder: Path) -> list[Setting]:
    """`kind`: of the matrices of both models, f32, f16 or q8_0."""
    files = {role: folder / f"{role}-{kind}.gguf" for role in ("target", "draft")}
    for role, file in files.items():
        to_gguf.convert(pair / role, file, kind)
    speculations: dict[str, dict[str, Any] | None] = {
        "off": None,
        f"draft {K}": {"type": "draft-simple", "model": str(files["draft"]), "n_max": K},
        "n-gram": {"type": "ngram-mod", "n_max": K},
    }
    return [
        Setting(
            "llama.cpp",
            kind,
            name,
            LlamacppPool.model_validate(
                {
                    "engine": "llamacpp",
                    "program": "xllamacpp",
                    "model": str(files["target"]),
                    "alias": MODEL,
                    "parallel": max(STREAMS),
                    "ctx_size": max(STREAMS) * 512,
                    "threads": threads,
                    "threads_batch": threads,
                    "cache_prompt": False,
                    "speculation": speculation,
                }
            ),
        )
        for name, speculation in speculations.items()
    ]


def vllm(python: Path, pair: Path, threads: int) -> list[Setting]:
    """As its log recommends: with Intel's OpenMP, which its environment has. Eager, as no GPU is there."""
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    if openmp.exists():
        environment["LD_PRELOAD"] = str(openmp)
    # Not `vllm serve`, which looks for a distribution called vllm: the build for CPUs is called vllm-cpu.
    server = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    server += ["--port", "{port}", "--model", str(pair / "target"), "--served-model-name", MODEL]
    server += ["--enforce-eager", "--max-num-seqs", str(max(STREAMS))]
    # The same prompts come again and again, and the others do not remember them either.
    server += ["--no-enable-prefix-caching"]

    def pool(dtype: str, speculation: dict[str, Any] | None) -> CommandPool:
        assigned = [f"{name}={value}" for name, value in environment.items()]
        chosen = ["--speculative-config", json.dumps(speculation)] if speculation else []
        words = ["env", *assigned, *server, "--dtype", dtype, *chosen]
        return CommandPool(engine="command", command=shlex.join(words))

    ngram = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    draft = {"method": "draft_model", "num_speculative_tokens": K, "model": str(pair / "draft")}
    return [
        Setting("vLLM", "f32", "off", pool("float32", None)),
        Setting("vLLM", "f32", f"draft {K}", pool("float32", draft)),
        Setting("vLLM", "f32", f"n-gram {K}", pool("float32", ngram)),
        Setting("vLLM", "bf16", "off", pool("bfloat16", None)),
    ]


def hugging_face(pair: Path, threads: int) -> list[Setting]:
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = Tokenizer.from_file(str(pair / "target" / "tokenizer.json"))

    def model(role: str, dtype: torch.dtype) -> Any:
        loaded = AutoModelForCausalLM.from_pretrained(pair / role, dtype=dtype).eval()
        loaded.generation_config.eos_token_id = None  # decode to the end, whatever the model says
        return loaded

    def generate(target: Any, **options: Any) -> Generate:
        def of(prompts: Sequence[Sequence[int]]) -> list[str]:
            ids = torch.tensor(prompts)
            with torch.inference_mode():
                output = target.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=TOKENS,
                    pad_token_id=0,
                    do_sample=False,
                    **options,
                )
            assert output.shape[1] == ids.shape[1] + TOKENS
            return [tokenizer.decode(row[ids.shape[1] :].tolist()) for row in output]

        return of

    target, draft = model("target", torch.float32), model("draft", torch.float32)
    half = model("target", torch.bfloat16)
    name = "Hugging Face"
    return [
        Setting(name, "f32", "off", generate=generate(target)),
        Setting(name, "f32", "draft", generate=generate(target, assistant_model=draft), streams=(1,)),
        Setting(
            name, "f32", f"n-gram {K}", generate=generate(target, prompt_lookup_num_tokens=K), streams=(1,)
        ),
        Setting(name, "bf16", "off", generate=generate(half)),
    ]


@contextmanager
def up(settings: Sequence[Setting], logs: Path) -> Iterator[dict[Setting, str]]:
    """The base URLs of the settings' servers."""
    with ExitStack() as servers:
        yield {
            setting: servers.enter_context(
                serving(
                    setting.pool,
                    str(setting),
                    model=MODEL,
                    log=logs / f"{str(setting).replace('/', ' ')}.log",
                    progress=SilentProgress(),
                )
            ).base_url
            for setting in settings
            if setting.pool is not None
        }


async def measure(
    settings: Sequence[Setting],
    base_urls: dict[Setting, str],
    prompts: dict[int, list[Prompt]],
    cells: Sequence[Cell],
    repeats: int,
) -> Rounds:
    """One turn: every setting in every cell, `repeats` times; the order is reversed each time."""
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
            await client.probe(prompts[LENGTHS[0]][0])

        async def served(setting: Setting, asked: list[Prompt], streams: int, repeat: int) -> dict[str, str]:
            cell = await run_cell(
                clients[setting], asked, Level(streams), repeat, seed=0, pace=pace, progress=SilentProgress()
            )
            tokens = [observation.answer.tokens for observation in cell.observations]
            if tokens != [TOKENS] * len(asked):
                raise SystemExit(f"{setting} answered with {tokens} tokens, and not with {TOKENS} each")
            return {observation.prompt: observation.answer.text for observation in cell.observations}

        def called(generate: Generate, asked: list[Prompt], streams: int) -> dict[str, str]:
            texts: dict[str, str] = {}
            for first in range(0, len(asked), streams):
                some = asked[first : first + streams]
                found = generate([cast(tuple[int, ...], prompt.content) for prompt in some])
                texts |= {prompt.id: text for prompt, text in zip(some, found, strict=True)}
            return texts

        for setting in settings:  # warm
            some, streams = prompts[LENGTHS[-1]], max(setting.streams)
            if setting in clients:
                await warm_up(clients[setting], some, max(4, streams), Level(streams), pace)
            elif setting.generate is not None:
                called(setting.generate, some[:streams], streams)
        for repeat, (length, streams) in product(range(repeats), cells):
            available = prompts[length]
            asked = [available[number % len(available)] for number in range(max(len(available), streams))]
            for setting in list(settings) if repeat % 2 == 0 else list(settings)[::-1]:
                if streams not in setting.streams:
                    continue
                began = perf_counter()
                if setting.generate is not None:
                    texts = called(setting.generate, asked, streams)
                else:
                    texts = await served(setting, asked, streams, repeat)
                rate = TOKENS * len(asked) / (perf_counter() - began)
                rounds.rates.setdefault(setting, {}).setdefault((length, streams), []).append(rate)
                if streams == 1:
                    rounds.answers.setdefault(setting, {}).update(texts)
    return rounds


def compared(turns: Sequence[Rounds], peer: str, cell: Cell) -> dict[str, Any] | None:
    """The embedded engine's best over the peer's best, in the turn in which that was up."""
    candidates = [
        (rate, setting, turn)
        for turn in turns
        for setting in turn.rates
        if setting.engine == peer and (rate := turn.rate(setting, cell)) is not None
    ]
    if not candidates:
        return None
    _, theirs, turn = max(candidates, key=lambda candidate: candidate[0])
    own = [setting for setting in turn.rates if setting.engine == OURS]
    ours = max(own, key=lambda setting: turn.rate(setting, cell) or 0.0)
    pairs = zip(turn.rates[ours][cell], turn.rates[theirs][cell], strict=True)
    ratios = [our / their for our, their in pairs]
    length, streams = cell
    return {
        "peer": peer,
        "prompt_tokens": length,
        "streams": streams,
        "embedded": ours.name,
        "theirs": f"{theirs.format}, {theirs.name}",
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "to_reach": TO_REACH.get((peer, length, streams)),
    }


def table(turns: Sequence[Rounds]) -> list[dict[str, Any]]:
    """A row for each setting; an embedded one's figure is the median over all turns."""
    settings = list(dict.fromkeys(setting for turn in turns for setting in turn.rates))
    reference = turns[0].answers[settings[0]]
    rows = []
    for setting in settings:
        within = [turn for turn in turns if setting in turn.rates]
        answers = within[0].answers[setting]
        same = sum(answers[prompt] == text for prompt, text in reference.items())
        rates: dict[int, dict[str, float]] = {}
        for length, streams in product(LENGTHS, STREAMS):
            found = [rate for turn in within for rate in turn.rates[setting].get((length, streams), [])]
            if found:
                rates.setdefault(length, {})[str(streams)] = statistics.median(found)
        rows.append(
            {
                "engine": setting.engine,
                "format": setting.format,
                "setting": setting.name,
                "tokens_per_s": rates,
                "ms_per_token": {
                    length: {streams: 1000 / rate for streams, rate in by_streams.items()}
                    for length, by_streams in rates.items()
                },
                "same_answers": f"{same}/{len(reference)}",
            }
        )
    return rows


def held_out(pair: Path, count: int) -> dict[int, list[Prompt]]:
    """Spread over the shipped set. A longer one has the texts behind it, too."""
    tokenizer = Tokenizer.from_file(str(pair / "target" / "tokenizer.json"))
    shipped = load_prompts(pair / "prompts.json").prompts
    encoded = [tokenizer.encode(str(prompt.content)).ids for prompt in shipped]
    chosen = [number * len(shipped) // count for number in range(count)]
    found: dict[int, list[Prompt]] = {}
    for length in LENGTHS:
        for number in chosen:
            joined = [token for step in (3, 2, 1, 0) for token in encoded[(number + step) % len(encoded)]]
            ids = tuple(joined[-length:])
            found.setdefault(length, []).append(Prompt(f"{shipped[number].id}-{length}", "all", ids))
    return found


def show(rows: Sequence[dict[str, Any]], ratios: Sequence[dict[str, Any]]) -> None:
    for length in LENGTHS:
        print(f"\n{length} tokens in, {TOKENS} out: ms a token, prompt included, by streams")
        print(f"{'':34}" + "".join(f"{streams:>8}" for streams in STREAMS) + f"{'same answers':>15}")
        for row in rows:
            by_streams = row["ms_per_token"].get(length, {})
            cells = "".join(
                f"{by_streams[str(s)]:8.2f}" if str(s) in by_streams else f"{'–':>8}" for s in STREAMS
            )
            name = f"{row['engine']} {row['format']}, {row['setting']}"
            print(f"{name:34}{cells}{row['same_answers']:>15}")
    print("\nbest over best, in the same turn")
    for ratio in ratios:
        level = f"{ratio['prompt_tokens']} in, {Level(ratio['streams'])}"
        goal = f"; to reach ≥ {ratio['to_reach']:.2f}×" if ratio["to_reach"] else ""
        spread = f"{ratio['lowest']:.2f}–{ratio['highest']:.2f}{goal}"
        print(
            f"{level}: embedded {ratio['embedded']} / {ratio['peer']} {ratio['theirs']} "
            f"{ratio['ratio']:.2f}× ({spread})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm", type=Path, help="interpreter of a venv that has vLLM; left out: without it")
    parser.add_argument("--prompts", type=int, default=16, help="spread over the shipped set")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of a turn")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument(
        "--quick", action="store_true", help="8 prompts, 2 rounds, and 4 streams of short ones only"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--pair", type=Path, help="another folder with target/, draft/ and prompts.json")
    options = parser.parse_args()
    cells = list(product(LENGTHS, STREAMS))
    if options.quick:
        options.prompts, options.repeats = 8, 2
        cells = [cell for cell in cells if cell != (max(LENGTHS), 4)]
    pair = (options.pair or asset("playbooks", "embedded")).resolve()
    prompts = held_out(pair, options.prompts)
    began = perf_counter()

    rounds: list[Rounds] = []
    own = embedded(pair, options.threads)
    with tempfile.TemporaryDirectory() as name, up(own, Path(name)) as ours:
        folder = Path(name)

        def turn(peers: Sequence[Setting]) -> None:
            with up(peers, folder) as theirs:
                rounds.append(
                    asyncio.run(measure([*own, *peers], ours | theirs, prompts, cells, options.repeats))
                )
            print(
                f"{perf_counter() - began:5.0f} s  {', '.join(map(str, peers))}", file=sys.stderr, flush=True
            )

        for kind in to_gguf.TYPES:
            turn(llamacpp(pair, options.threads, kind, folder))
        turn(hugging_face(pair, options.threads))
        for peer in vllm(options.vllm.absolute(), pair, options.threads) if options.vllm else ():
            turn([peer])

    rows = table(rounds)
    peers = list(dict.fromkeys(row["engine"] for row in rows if row["engine"] != OURS))
    ratios = [found for peer, cell in product(peers, cells) if (found := compared(rounds, peer, cell))]
    show(rows, ratios)
    if options.json is not None:
        figures = {
            "date": date.today().isoformat(),
            "environment": environment(),
            "threads": options.threads,
            "prompts": options.prompts,
            "rounds": options.repeats,
            "wall_s": round(perf_counter() - began),
            "settings": rows,
            "ratios": ratios,
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
