"""`specops edge verify-server` as a process: its one line, its signals, its metrics, its exit codes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
import trustme
from calling import specops
from calling_edge import Drafting, Stream, finish

from specops.edge.link import Branch, Proposal, SessionRefused, Verdict
from specops.edge.service import own_token
from specops.edge.wire import ahead_request, limits_of, round_request
from specops.engine import Sampling, load_engine
from specops.errors import UsageError

Start = Callable[..., subprocess.Popen[str]]
LINE = re.compile(
    r"verifying for target on 127\.0\.0\.1:(\d+) \((insecure|TLS), batch 2\)"
    r"(?:, metrics on (http://127\.0\.0\.1:\d+)/metrics)?$"
)


@pytest.fixture
def start(tiny_pair: tuple[Path, Path]) -> Iterator[Start]:
    """Starts `specops edge verify-server` on the tiny target; kills what a test leaves running."""
    started: list[subprocess.Popen[str]] = []
    program = "from specops.cli.app import main; main()"

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, "edge", "verify-server", "--target", str(tiny_pair[0])]
        command += ["--port", "0", "--max-batch", "2", "--threads", "1", *arguments]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def announced(process: subprocess.Popen[str]) -> re.Match[str]:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = LINE.match(line)
    assert found, line + process.stderr.read()
    return found


class Random(Drafting):
    """It knows nothing of the model: its trees are of any tokens, some of which will be right by chance."""

    def proposal(self, number: int) -> Proposal:
        return Proposal(tuple((number * 7 + node) % 300 for node in range(8)), (0, 0, 0, 0, 1, 1, 2, 3))


def test_greedy_output_is_that_of_the_engine_alone_metrics_say_what_was_done_and_a_signal_drains(
    start: Start, tiny_pair: tuple[Path, Path]
) -> None:
    alone = load_engine(tiny_pair[0], tree="none", threads=1)
    prompts = [[5, 6, 7], [9], list(range(30, 90))]
    wanted = [alone.generate(prompt, Sampling(max_tokens=20)).tokens for prompt in prompts]
    process = start("--metrics-port", "0", "--tree", "ngram:4")
    line = announced(process)

    async def scenario() -> None:
        stream = Stream(int(line[1]))
        served = limits_of(await stream.describe())
        assert (served.model, served.own_tree, served.max_length) == ("target", "ngram:4", 512)
        sessions = [Random(number, prompt, 20) for number, prompt in enumerate(prompts)]
        for session in sessions:
            await session.open(stream)
        await finish(stream, *sessions)
        assert [session.output for session in sessions] == wanted
        await sessions[0].close(stream)
        again = Drafting(0, prompts[0], 20)  # now the server drafts
        await again.open(stream, server_drafts=True)
        while not again.ended:
            await again.take(stream, await stream.hear(), server_drafts=True)
        assert again.output == wanted[0]
        assert line[3] is not None
        await asyncio.to_thread(look, line[3])
        last = Random(8, prompts[0], 20)
        await last.open(stream)
        event = await stream.hear()
        await drains(process)  # and what runs may finish
        await last.take(stream, event)
        await finish(stream, last)
        assert last.output == wanted[0]
        await stream.cut()

    asyncio.run(scenario())
    assert process.wait(60) == 0


def chain(tokens: list[int]) -> Proposal:
    return Proposal(tuple(tokens), tuple(range(len(tokens))))


def test_rounds_sent_ahead_are_verified_without_being_sent_and_the_output_is_that_of_the_engine_alone(
    start: Start, tiny_pair: tuple[Path, Path]
) -> None:
    """What is out waits long enough for what comes ahead: for a second session, which never sends a round."""
    prompt = [5, 6, 7]
    alone = load_engine(tiny_pair[0], tree="none", threads=1)
    wanted = alone.generate(prompt, Sampling(max_tokens=20, ignore_eos=True)).tokens
    line = announced(start("--batching", "static:2:400"))

    async def scenario() -> None:
        stream, output, taken, sent = Stream(int(line[1])), list[int](), list[int](), 1
        session = Drafting(1, prompt, 20)
        for number in (2, 1):
            session.number, session.key = number, bytes([number]) * 16
            await session.open(stream)
            first = await stream.hear()
            assert isinstance(first, Verdict)
        output += first.tokens
        await stream.say(round_request(1, 1, chain(wanted[1:3])))
        while len(output) < len(wanted):
            place = len(output)
            number = len(taken) + 1
            after = place + 3  # both nodes, and the bonus
            if number != 3 and after < len(
                wanted
            ):  # of two branches, one is right; of the third round none is
                right = Branch(2, wanted[after - 1], chain(wanted[after : after + 2]))
                wrong = Branch(1, wanted[after - 1], chain([0, 0]))
                await stream.say(ahead_request(1, number, 1, [wrong, right]))
            elif after < len(wanted):
                await stream.say(ahead_request(1, number, 1, [Branch(0, wanted[place], chain([0]))]))
            verdict = await stream.hear()
            assert isinstance(verdict, Verdict)
            assert verdict.number == number
            output += verdict.tokens
            taken.append(verdict.version)
            if not verdict.version and not verdict.ended:
                sent += 1
                await stream.say(round_request(1, number + 1, chain(wanted[len(output) :][:2])))
        assert output == wanted
        assert (taken, sent) == ([1, 1, 0, 1, 1, 1, 0], 2)
        await stream.cut()

    asyncio.run(scenario())


def look(url: str) -> None:
    series = scraped(f"{url}/metrics")
    assert series['vllm:generation_tokens_total{engine="0",model_name="target"}'] == 80
    assert series['specops_edge_server_rounds_total{engine="0",model_name="target"}'] > 10
    assert series['specops_edge_server_batch_trees_bucket{engine="0",le="2.0",model_name="target"}'] > 10
    with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=60) as health:
        assert health.status == 200


def scraped(url: str) -> dict[str, float]:
    with build_opener(ProxyHandler({})).open(url, timeout=60) as page:
        lines = page.read().decode().splitlines()
    split = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in split}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> list[str]:
    """Options for TLS and tokens."""
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "tokens").write_text("# clients\nann=token-of-ann\n\nbob=token-of-bob\n")
    named = [("--tls-cert", "cert.pem"), ("--tls-key", "key.pem"), ("--token-file", "tokens")]
    return [each for option, name in named for each in (option, str(tmp_path / name))]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("grace", "signals"), [("600", 2), ("0", 1)])
def test_a_second_signal_or_the_end_of_the_grace_ends_at_once(
    start: Start, grace: str, signals: int, files: list[str], authority: trustme.CA
) -> None:
    """Over TLS and with a token, both from files."""
    process = start("--grace", grace, *files)
    line = announced(process)
    assert line[2] == "TLS"

    async def scenario() -> None:
        stream = Stream(int(line[1]), token="token-of-bob", tls=authority.cert_pem.bytes())
        session = Random(1, [5], 20)
        await session.open(stream)
        await stream.hear()  # it runs, and it is the client's turn
        await drains(process)
        for _ in range(signals - 1):
            process.send_signal(signal.SIGTERM)
        refused = await stream.hear()
        assert isinstance(refused, SessionRefused)
        assert refused.reason == "draining"
        await stream.cut()

    asyncio.run(scenario())
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert "ended before 1 running sessions" in process.stderr.read()


async def drains(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "SIGTERM: no new sessions" in await asyncio.to_thread(process.stderr.readline)


def test_a_taken_port_is_one_sentence_and_exit_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = specops("edge", "verify-server", "--port", port)
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: could not listen on 127.0.0.1 port {port}: Address already in use")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--host", "0.0.0.0"), 2, "without TLS"),
        (("--tls-cert", "cert.pem"), 2, "--tls-cert and --tls-key go together"),
        (("--tls-cert", "no.pem", "--tls-key", "no.pem"), 3, "could not use the certificate no.pem"),
        (("--token-file", "no"), 3, "could not read the tokens in no"),
        (("--batching", "static:0"), 2, "static:0"),
        (("--tree", "chain"), 2, "chain"),
        (("--target", "nowhere"), 3, "nowhere"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = specops("edge", "verify-server", "--port", "0", *arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("token", ["short", "two words, and more", "with-a-line-end\n"])
def test_a_token_that_no_client_could_send_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(UsageError, match="SPECOPS_EDGE_TOKEN") as refused:
        own_token(token)
    assert token not in refused.value.message
