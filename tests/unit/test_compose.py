"""The Compose file: by the specification's own schema, and what it must say of GPUs, ports and secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from made_servers import WORDS, deploy, server, words

from specops.config import Deploy
from specops.render.server import Server, compose

SCHEMA = Path(__file__).parents[1] / "schemas" / "compose-spec.json"
VALIDATOR = Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def read(servers: list[Server], asked: Deploy | None = None) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(compose(servers, asked or deploy()))
    VALIDATOR.validate(document)
    return document


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cpus": 7.5, "memory_gib": 64, "shm_gib": 16, "gpus": 4},
        {"model_folder": "/models", "model_claim": "weights", "cache_claim": "cache", "namespace": "llm"},
        {"secrets": {"HF_TOKEN": "hugging-face"}, "drain_s": 30, "probes": {"period_s": 1}},
    ],
)
def test_it_is_of_the_specifications_schema(asked: dict[str, Any]) -> None:
    plain = server(gpus=0, downloads=False, environment={"A": "b"})
    document = read([plain, server("speculative")], deploy(**asked))
    assert list(document["services"]) == ["standard", "speculative"]
    assert document["name"] == "my-rollout-1"


def test_the_schema_would_have_found_a_fault() -> None:
    document = yaml.safe_load(compose([server()], deploy()))
    document["services"]["standard"]["healthcheck"]["perod"] = "10s"
    assert not VALIDATOR.is_valid(document)


def test_every_server_has_gpus_and_a_port_of_its_own() -> None:
    services = read([server(replicas=2, gpus=2), server("speculative", gpus=4)])["services"]
    assert list(services) == ["standard", "standard-2", "speculative"]
    devices = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in services.values()
    ]
    assert devices == [["0", "1"], ["2", "3"], ["4", "5", "6", "7"]]
    assert [service["ports"] for service in services.values()] == [
        ["127.0.0.1:8000:8000"],
        ["127.0.0.1:8001:8000"],
        ["127.0.0.1:8002:8000"],
    ]
    pools = [service["labels"]["specops_pool"] for service in services.values()]
    assert pools == ["standard", "standard", "speculative"]


def test_a_secret_is_a_name_without_a_value() -> None:
    text = compose([server()], deploy(secrets={"HF_TOKEN": "hugging-face"}))
    environment = yaml.safe_load(text)["services"]["standard"]["environment"]
    assert environment["HF_TOKEN"] is None
    assert "hugging-face" not in text


def test_local_models_are_mounted_where_they_are_named_and_never_made() -> None:
    volumes = read([server()], deploy(model_folder="/models"))["services"]["standard"]["volumes"]
    assert {"type": "bind", "source": "/models", "target": "/models"}.items() <= volumes[0].items()
    assert volumes[0]["read_only"] is True
    assert volumes[0]["bind"]["create_host_path"] is False


def interpolated(text: str) -> str:
    """What Compose makes of a value: $$ is a dollar, and anything else behind a dollar a variable."""
    return re.sub(r"\$(\$|.?)", lambda found: "$" if found[1] == "$" else "<variable>", text)


@given(
    st.lists(words, min_size=1, max_size=5),
    st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), words, max_size=3),
)
def test_words_and_variables_arrive_as_they_are(said: list[str], environment: dict[str, str]) -> None:
    service = read([server(command=(*WORDS, *said), environment=environment, downloads=False)])["services"]
    found = service["standard"]
    assert [interpolated(word) for word in found["entrypoint"]] == [*WORDS, *said]
    assert {k: interpolated(v) for k, v in found.get("environment", {}).items()} == environment


def test_the_same_settings_give_the_same_text() -> None:
    one, other = {"B": "1", "A": "2"}, {"A": "2", "B": "1"}
    assert compose([server(environment=one)], deploy()) == compose([server(environment=other)], deploy())
