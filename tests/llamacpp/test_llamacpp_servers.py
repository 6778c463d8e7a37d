"""llama.cpp's server as a pool: it starts with each kind of draft, answers as the model does, and stops."""

from __future__ import annotations

import json
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Serve
from reported_drafts import CLOSE, counted_and_reported

from specops.assets import asset
from specops.errors import EnvironmentFailure, ServerError
from specops.launch import servers
from specops.launch.servers import FixedAddress, running
from specops.phases.verify_draft.pair import settings_for
from specops.phases.verify_draft.verify import verify
from specops.progress import SilentProgress
from specops.prometheus.exposition import DraftCounts, draft_counts, scrape
from specops.serving import pool_of
from specops.serving.engine import Startable

PROMPTS = [
    prompt["text"]
    for prompt in json.loads(asset("playbooks", "embedded", "prompts.json").read_text(encoding="utf-8"))[:6]
]
TOKENS = 24
LIKELY, SAMPLES = 20, 600


def post(url: str, **body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "Connection": "close"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def greedy(base_url: str, prompt: str) -> str:
    answer = post(f"{base_url}/completions", prompt=prompt, max_tokens=TOKENS, temperature=0)
    text: str = answer["choices"][0]["text"]
    return text


def listens(base_url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(base_url).port or 0)) == 0


def test_it_serves_the_same_answers_with_drafts_and_stops(serve: Serve, standard, drafting) -> None:
    texts = {}
    looked_up = {"type": "ngram-simple", "size_n": 2, "n_max": 3}
    for name, speculation in (("none", None), ("draft", drafting), ("ngram", looked_up)):
        with serve(standard | {"speculation": speculation}) as server:
            assert server.model == "shipped"
            before = scrape(server.base_url)
            texts[name] = [greedy(server.base_url, prompt) for prompt in PROMPTS]
            counts = draft_counts(before, scrape(server.base_url))
        assert not listens(server.base_url), "it is stopped"
        assert isinstance(counts, DraftCounts) is (name != "none")
        if isinstance(counts, DraftCounts) and name == "draft":
            assert 0 < counts.accepted_tokens < counts.draft_tokens
            assert len(counts.accepted_per_position) == drafting["n_max"]
    assert texts["none"] == texts["draft"] == texts["ngram"]


def test_pooled_answers_equal_the_counters(serve: Serve, standard, drafting, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    chosen = json.loads(asset("playbooks", "embedded", "prompts.json").read_text(encoding="utf-8"))[:8]
    prompts.write_text(json.dumps([one | {"max_tokens": TOKENS} for one in chosen]), encoding="utf-8")
    with serve(standard | {"speculation": drafting}) as server:
        cells = counted_and_reported(server.base_url, "shipped", prompts)
    for counted, answers in cells:
        # an answer without any draft leaves the field out, as a server that does not speculate does
        assert answers.requests + answers.silent == len(chosen)
        assert answers.requests > len(chosen) / 2
        assert answers.drafted == pytest.approx(counted.draft_tokens, rel=CLOSE)
        assert answers.accepted == pytest.approx(counted.accepted_tokens, rel=CLOSE)
        assert 0 < answers.accepted < answers.drafted


@pytest.mark.parametrize(
    "type_", ["ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "ngram-simple", "draft-simple"]
)
def test_k_reaches_the_server(type_, serve: Serve, standard, drafting) -> None:
    speculation = drafting if type_ == "draft-simple" else {"type": type_, "n_max": 2, "size_n": 2}
    speculation = {"type": type_} if type_ == "ngram-cache" else speculation
    speculation |= {} if type_ == "ngram-cache" else {"n_max": 2}
    with serve(standard | {"speculation": speculation}) as server:
        before = scrape(server.base_url)
        for prompt in PROMPTS:
            greedy(server.base_url, prompt + prompt)  # what repeats itself
        counts = draft_counts(before, scrape(server.base_url))
    if isinstance(counts, DraftCounts) and type_ != "ngram-cache":
        assert counts.draft_tokens <= 2 * counts.drafts
    if type_ in ("draft-simple", "ngram-simple"):
        assert isinstance(counts, DraftCounts), "it drafts"


def test_a_draft_of_another_vocabulary_is_not_used_as_verify_draft_says(
    serve: Serve, standard, drafting, tmp_path: Path
) -> None:
    import to_gguf

    folder = tmp_path / "draft"
    folder.mkdir()
    for file in asset("playbooks", "embedded", "draft").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    one, other = (next(token for token, index in vocab.items() if index == at) for at in (900, 901))
    vocab[one], vocab[other] = vocab[other], vocab[one]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    to_gguf.convert(folder, tmp_path / "other.gguf", "f32")
    settings = standard | {"speculation": drafting | {"model": str(tmp_path / "other.gguf")}}
    asked = settings_for(pool_of(settings))
    assert asked is not None
    judged = verify(asked, None, SilentProgress())
    assert judged.verdict == "no"
    said = [one["detail"] for one in judged.data["findings"] if one["verdict"] == "incompatible"]
    assert any("serves without speculation" in detail for detail in said)
    with serve(settings) as server:
        before = scrape(server.base_url)
        greedy(server.base_url, PROMPTS[0])
        assert not isinstance(draft_counts(before, scrape(server.base_url)), DraftCounts)


def test_a_model_that_is_not_there_is_said_with_its_name(serve: Serve, standard) -> None:
    with (
        pytest.raises(ServerError, match="ended before it was up") as ended,
        serve(standard | {"model": "x.gguf"}),
    ):
        pass
    assert "failed to load model, 'x.gguf'" in str(ended.value)
    assert "Traceback" not in str(ended.value)


def test_a_port_in_use_is_said(standard, tmp_path: Path) -> None:
    pool = pool_of(standard)
    assert isinstance(pool, Startable)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        start = pool.start(port, "m")
        with (
            pytest.raises(ServerError, match="ended before it was up") as ended,
            running(
                "s",
                start.words,
                address=FixedAddress.on(port),
                log=tmp_path / "log",
                progress=SilentProgress(),
            ),
        ):
            pass
    assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in ended.value.log


def test_a_program_that_is_not_here_is_said_before_anything_starts(standard) -> None:
    gone = pool_of(standard | {"program": "/nowhere/llama-server"})
    assert isinstance(gone, Startable)
    with pytest.raises(EnvironmentFailure, match="there is no program /nowhere/llama-server"):
        servers.check(gone, "gone")


@pytest.mark.slow
def test_its_greedy_tokens_and_log_probabilities_are_those_of_transformers(serve: Serve, standard) -> None:
    """The conversion is right: float32 there, float32 here, and other sums."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = asset("playbooks", "embedded", "target")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with serve(standard) as server:
        root = server.base_url.removesuffix("/v1")
        for prompt in PROMPTS:
            ids = tokenizer(prompt)["input_ids"]
            assert post(f"{root}/tokenize", content=prompt)["tokens"] == ids
            answer = post(f"{root}/completion", prompt=ids, n_predict=TOKENS, temperature=0, n_probs=1,
                          return_tokens=True)  # fmt: skip
            tokens = answer["tokens"]
            with torch.no_grad():
                logits = model(torch.tensor([ids + tokens])).logits[0, len(ids) - 1 : -1]
            expected = torch.log_softmax(logits, -1)
            assert expected.argmax(-1).tolist() == tokens
            told = [one["logprob"] for one in answer["completion_probabilities"]]
            assert told == pytest.approx(expected.max(-1).values.tolist(), abs=5e-3), (
                "its KV cache is float16"
            )


@pytest.mark.slow
def test_sampled_answers_with_a_draft_are_distributed_as_the_model_says(
    serve: Serve, standard, drafting
) -> None:
    """The second token, of which a draft is the first guess, against the exact distribution."""
    import numpy as np
    import torch
    from scipy.stats import chi2
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = asset("playbooks", "embedded", "target")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = "    for key, value in self.items():\n        if "
    ids = AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"]

    def likely(rows: list[list[int]]) -> torch.Tensor:
        """Of the `LIKELY` likeliest tokens behind each row, their probabilities; 0 of others."""
        with torch.no_grad():
            logits = model(torch.tensor(rows)).logits[:, -1].double()
        return torch.softmax(logits.where(logits >= logits.topk(LIKELY).values[:, -1:], -torch.inf), -1)

    (first,) = likely([ids])
    begun = first.nonzero().flatten().tolist()
    exact = (first[begun] @ likely([[*ids, token] for token in begun])).numpy()
    plain = {"temperature": 1.0, "top_k": LIKELY, "top_p": 1.0, "min_p": 0.0, "return_tokens": True}
    with serve(standard | {"speculation": drafting}) as server, ThreadPoolExecutor(4) as threads:
        root = server.base_url.removesuffix("/v1")

        def drawn(seed: int) -> Any:
            return post(f"{root}/completion", prompt=ids, n_predict=4, seed=seed, **plain)

        answers = list(threads.map(drawn, range(SAMPLES)))
    assert sum(answer["timings"]["draft_n_accepted"] for answer in answers) > SAMPLES / 4
    counted = np.bincount([answer["tokens"][1] for answer in answers], minlength=len(exact))
    often = exact * SAMPLES >= 5
    seen = np.append(counted[often], counted[~often].sum())
    expected = np.append(exact[often], exact[~often].sum()) * SAMPLES
    statistic = float(((seen - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(seen) - 1) > 1e-4


def test_log_probabilities_of_drafted_tokens_are_missing_still(serve: Serve, standard, drafting) -> None:
    """What the canary finds, by hand. Where this fails, docs/llamacpp.md is to say from which build on."""
    with serve(standard | {"speculation": drafting}) as server:
        answer = post(f"{server.base_url}/completions", prompt=PROMPTS[0], max_tokens=TOKENS, temperature=0,
                      logprobs=2)  # fmt: skip
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert {(one["logprob"], len(one["top_logprobs"])) for one in tokens[2:]} == {(0.0, 0)}
