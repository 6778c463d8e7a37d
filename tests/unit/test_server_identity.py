"""Whether two addresses lead to one server: spellings of an address, and what both show in their metrics."""

from __future__ import annotations

import socket

import pytest

from specops.access import Access
from specops.load.server_identity import moved_along, one_address, one_process
from specops.net import address, machine_address
from specops.prometheus.exposition import Scrape, parse
from specops.serving import Endpoint

ONE = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    "same",
    [
        "http://127.0.0.1:8000/v1/",
        "HTTP://127.0.0.1:8000/v1",
        "http://localhost:8000/v1",
        "http://LOCALHOST:8000/v1",
        "http://localhost.:8000/v1",
        "http://[::1]:8000/v1",
        "http://[0:0:0:0:0:0:0:1]:8000/v1",
        "http://[::ffff:127.0.0.1]:8000/v1",
        "http://0.0.0.0:8000/v1",
        "http://[::]:8000/v1",
        "http://127.1:8000/v1",
        "http://127.0.0.1:8000//v1",
    ],
)
def test_spellings_of_one_address(same: str) -> None:
    assert address(same) == address(ONE)
    assert one_address(Endpoint(ONE, "m"), Endpoint(same, "m"))


@pytest.mark.parametrize(
    "other",
    [
        "http://127.0.0.1:8001/v1",
        "https://127.0.0.1:8000/v1",
        "http://127.0.0.2:8000/v1",
        "http://localhost.example:8000/v1",
        "http://10.0.0.1:8000/v1",
        "http://[::2]:8000/v1",
        "http://127.0.0.1:8000/standard/v1",
        "http://127.0.0.1:8000/V1",
        "http://127.0.0.1/v1",
    ],
)
def test_other_addresses(other: str) -> None:
    assert address(other) != address(ONE)
    assert one_address(Endpoint(ONE, "m"), Endpoint(other, "m")) is None


@pytest.mark.parametrize(
    "same", ["localhost:9145", "127.0.0.1:9145", "[::1]:9145", "0.0.0.0:9145", "127.1:9145"]
)
def test_all_names_of_this_machine_are_one(same: str) -> None:
    assert machine_address(f"http://{same}/a") == "http://127.0.0.1:9145/a"


def test_the_name_and_the_interfaces_of_this_machine_are_this_machine() -> None:
    for _, _, _, _, where in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
        name = f"[{where[0]}]" if ":" in str(where[0]) else where[0]
        assert machine_address(f"http://{name}:9145") == "http://127.0.0.1:9145"
    assert machine_address(f"http://{socket.gethostname()}:9145") == "http://127.0.0.1:9145"


@pytest.mark.parametrize("elsewhere", ["192.0.2.1:9145", "127.0.0.2:9145", "no-such-host.invalid:9145"])
def test_what_is_elsewhere_stays_as_it_is(elsewhere: str) -> None:
    assert machine_address(f"http://{elsewhere}") == f"http://{elsewhere}"


def test_default_ports_and_case_of_hosts() -> None:
    assert address("http://Host.Example/v1") == address("http://host.example:80/v1/")
    assert address("https://host.example/v1") == address("https://host.example.:443/v1")
    assert address("http://host.example:443/v1") != address("https://host.example/v1")
    assert address("http://host.example:80") == address("http://host.example/")


def test_two_models_at_one_address_may_be_two_servers_behind_a_gateway() -> None:
    assert one_address(Endpoint(ONE, "standard"), Endpoint(ONE, "speculative")) is None


def test_two_headers_at_one_address_may_be_two_servers_behind_a_gateway() -> None:
    one, other = (Endpoint(ONE, "m", Access(headers={"X-Pool": name})) for name in ("a", "b"))
    assert one_address(one, other) is None
    assert one_address(one, one)
    assert one_address(Endpoint(ONE, "m"), Endpoint(ONE, "m", Access(api_key_env="KEY")))


def scraped(
    started: str | None = "1763900000.23",
    generated: int = 100,
    cpu: float = 12.5,
    model: str = "m",
    labels: str = "",
    extra: str = "",
) -> Scrape:
    lines = [
        "# TYPE process_cpu_seconds_total counter",
        f"process_cpu_seconds_total {cpu}",
        "# TYPE vllm:generation_tokens_total counter",
        f'vllm:generation_tokens_total{{engine="0",model_name="{model}"{labels}}} {generated}',
        extra,
    ]
    if started is not None:
        lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started}"]
    return parse("\n".join([*filter(None, lines), ""]))


MODELS = ("m", "m")


def test_one_process_seen_through_two_addresses() -> None:
    found = one_process([scraped(cpu=12.5)], [scraped(cpu=12.51)], [scraped(cpu=12.51)], MODELS)
    assert found is not None
    assert "1763900000.23" in found
    assert "serves m" in found


@pytest.mark.parametrize(
    "other",
    [
        scraped(started="1763900000.24"),
        scraped(started="1763900000.2"),
        scraped(started=None),
        scraped(model="another"),
        scraped(cpu=12.49),
        scraped(cpu=12.52),
        scraped(generated=101),
        scraped(generated=99),
        scraped(extra='vllm:request_success_total{finished_reason="stop",model_name="m"} 1'),
        parse("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1763900000.23\n"),
    ],
    ids=[
        "hundredth", "fewer digits", "no start", "model", "less cpu", "more cpu", "more tokens",
        "fewer tokens", "another series", "no model",
    ],
)  # fmt: skip
def test_what_does_not_show_one_process(other: Scrape) -> None:
    """Two replicas that one script starts in the same hundredth of a second differ in their counters."""
    assert one_process([scraped()], [other], [scraped(cpu=12.51)], MODELS) is None


def test_neither_start_time_nor_model_shows_nothing() -> None:
    no_start = scraped(started=None)
    assert one_process([no_start], [no_start], [no_start], MODELS) is None
    no_model = parse("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1763900000.23\n")
    assert one_process([no_model], [no_model], [no_model], MODELS) is None


def test_two_models_that_the_metrics_tell_apart_are_two_engines_of_one_process() -> None:
    both = scraped(extra='vllm:generation_tokens_total{engine="0",model_name="n"} 5')
    assert one_process([both], [both], [both], ("m", "n")) is None
    assert one_process([both], [both], [both], ("m", "m")) is not None
    alias = scraped()  # served under two names: the metrics know the first
    assert one_process([alias], [alias], [alias], ("m", "n")) is not None


def test_a_gateway_that_collects_the_metrics_of_several_servers_is_not_a_server() -> None:
    other = 'vllm:generation_tokens_total{engine="0",model_name="m",server="b"} 5'
    gateway = scraped(labels=',server="a"', extra=other)
    assert one_process([gateway], [gateway], [gateway], MODELS) is None
    assert moved_along([scraped(generated=90)], [gateway], [gateway], [gateway]) is None
    ranks = scraped(extra='vllm:generation_tokens_total{engine="1",model_name="m"} 5')
    assert one_process([ranks], [ranks], [ranks], MODELS) is not None


def test_a_load_balancer_leads_each_scrape_to_another_replica() -> None:
    replicas = [scraped(started="1763900000.23"), scraped(started="1763900007.01", generated=7)]
    assert one_process(replicas, replicas[::-1], replicas, MODELS) is not None
    assert one_process(replicas, [replicas[1]], replicas, MODELS) is not None
    assert one_process(replicas, [scraped(started="1763900009.99")], replicas, MODELS) is None


def test_a_request_to_one_that_the_other_counted() -> None:
    idle, after = scraped(started=None), scraped(started=None, generated=108, cpu=12.6)
    found = moved_along([idle], [after], [after], [after])
    assert found is not None
    assert "grew by 8 while only the first was sent a request" in found


def test_two_servers_are_not_one_for_a_request_to_one_of_them() -> None:
    idle, after = scraped(started=None), scraped(started=None, generated=108)
    assert moved_along([idle], [after], [idle], [after]) is None, "it did not grow"
    busy = scraped(started=None, generated=107)
    assert moved_along([idle], [after], [busy], [after]) is None, "its users' requests"
    more = scraped(started=None, generated=109)
    assert moved_along([idle], [after], [more], [after]) is None, "its users' requests"
    fresh = scraped(started=None, generated=0)
    assert moved_along([fresh], [fresh], [fresh], [fresh]) is None, "neither counted anything"
    assert moved_along([], [after], [after], [after]) is None
