"""Two pools with keys, headers and certificates of their own: everything that talks to a pool sends its own
secrets to it, and no secret is in a file, a message or a command."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme
import yaml
from any_speed import any_speed_passes
from calling import specops
from stub import CHUNKS, Body, Reply, Stub, running_stub, stream

from specops.access import Access, Credentials
from specops.config import load
from specops.config.rollout import CheckName
from specops.errors import ConfigError, EndpointError, UsageError
from specops.phases import PhaseName, playbook
from specops.phases.canary import canary
from specops.phases.diagnose.collectors.live import ScrapedPool, access_at
from specops.phases.doctor.deployment import deployment
from specops.phases.inputs import identity, inputs_of, settings_of, version_of
from specops.progress import SilentProgress
from specops.render.prometheus.scrape import prometheus_config
from specops.serving import pool_of

SECRETS = {
    "KEY_A": "sk-alpha-9f31c7",
    "KEY_B": "sk-beta-22d8e0",
    "TENANT_A": "tenant-alpha-77",
    "TENANT_B": "tenant-beta-88",
}


@dataclass
class Gateway:
    """Two scripted servers. The standard has a private CA and asks for a client certificate."""

    standard: Stub
    speculative: Stub
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "rollout.yaml"

    def pools(self) -> dict[str, dict[str, Any]]:
        of_a = {"api_key_env": "KEY_A", "headers": {"X-Tenant": "${TENANT_A}", "X-Site": "lab"}}
        files = {"ca_file": "ca.pem", "client_cert": "client.pem", "client_key": "client.key"}
        of_b = {"api_key_env": "KEY_B", "headers": {"X-Tenant": "id ${TENANT_B}"}}
        return {
            "standard": {"engine": "endpoint", "base_url": self.standard.base_url, "model": "stub"}
            | of_a
            | files,
            "speculative": {"engine": "endpoint", "base_url": self.speculative.base_url, "model": "stub"}
            | of_b,
        }

    def write(self, **changes: Any) -> Path:
        measure = {"endpoint": "completions", "concurrency": [1], "repeats": 2, "warmup": 0}
        written = {
            "rollout": "gate",
            "prompts": "prompts.json",
            "pools": self.pools(),
            "measure": measure,
            "ab": {"looks": 1, "mixed_prompts": 0, "requests": 24, "min_duration_s": 0.0},
            "canary": {"skip": [name for name in get_args(CheckName) if name != "parity"], "prompts": 4},
        }
        self.file.write_text(yaml.safe_dump(written | changes))
        return self.file


def answer(body: Body) -> Reply:
    if body.get("stream"):
        return Reply(stream(body, CHUNKS))
    text = "Once upon a time."
    said = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
    usage = {"prompt_tokens": 4, "completion_tokens": 8, "total_tokens": 12}
    whole = {"choices": [{"index": 0, "finish_reason": "length"} | said], "usage": usage}
    return Reply([json.dumps(whole).encode()], content_type="application/json")


def admits(key: str, tenant: str) -> Any:
    return lambda headers: (
        headers.get("Authorization") == f"Bearer {SECRETS[key]}" and headers.get("X-Tenant") == tenant
    )


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    for name in ("SPECOPS_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("specops@example.org")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    for part in client.cert_chain_pems:
        part.write_to_path(tmp_path / "client.pem", append=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    prompts = [{"id": f"p{i}", "class": "short", "text": f"Prompt {i}", "max_tokens": 16} for i in range(12)]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    with running_stub(tls) as standard, running_stub() as speculative, any_speed_passes():
        standard.admits = admits("KEY_A", SECRETS["TENANT_A"])
        speculative.admits = admits("KEY_B", f"id {SECRETS['TENANT_B']}")
        for server in (standard, speculative):
            server.metrics = lambda: 'vllm:generation_tokens_total{model_name="stub"} 8\n'
            server.answer = answer
        found = Gateway(standard, speculative, tmp_path)
        found.write()
        yield found


def paths(stub: Stub) -> set[str]:
    return {path for path, _ in stub.visitors}


def refused(stub: Stub) -> list[str]:
    return [path for path, headers in stub.visitors if not stub.admits(headers)]


def without_secrets(text: str) -> bool:
    return not any(secret in text for secret in SECRETS.values())


def test_a_walk_sends_each_pool_its_own_secrets_and_stores_none(gateway: Gateway) -> None:
    done = specops("run", str(gateway.file), "--continue", "--yes")
    assert done.returncode in (0, 1, 4), done.stderr
    for server in (gateway.standard, gateway.speculative):
        assert {"/v1/completions", "/v1/models", "/metrics", "/version"} <= paths(server)
        assert refused(server) == []
    assert without_secrets(done.stdout + done.stderr)
    run = gateway.folder / "runs" / "gate"
    written = [path for path in run.rglob("*") if path.is_file()]
    assert {"baseline.json", "ab.json", "canary.json", "index.html"} <= {path.name for path in written}
    for path in written:
        assert without_secrets(path.read_text(encoding="utf-8", errors="replace")), path
    # The names of the variables are stored: they say which secret was used.
    assert "KEY_A" in (run / "ab.json").read_text()


@pytest.mark.parametrize("phase", ["baseline", "ab", "canary"])
def test_a_wrong_key_is_one_sentence_with_the_pool_and_its_variable(
    gateway: Gateway, phase: PhaseName, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = "standard" if phase == "baseline" else "speculative"
    variable = "KEY_A" if phase == "baseline" else "KEY_B"
    monkeypatch.setenv(variable, "sk-wrong-0001")
    server = getattr(gateway, pool)
    with pytest.raises(EndpointError) as caught:
        playbook.run(
            load(gateway.file), gateway.file, gateway.folder / "runs" / "gate", SilentProgress(), only=phase
        )
    assert caught.value.message.startswith(
        f"{pool} ({server.base_url}) refused the API key in {variable} (401): go away"
    )
    assert caught.value.hint == f"export {variable}=YOUR_KEY  # then run the same command again"
    assert "sk-wrong" not in caught.value.message  # the server echoes it
    assert server.requests == []


def test_a_missing_variable_is_refused_before_anything_is_sent(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_B")
    monkeypatch.setenv("TENANT_B", " ")
    for words in (
        ("run", str(gateway.file), "--yes"),
        ("run", str(gateway.file), "--only", "ab", "--yes"),
        ("canary", str(gateway.file)),
    ):
        done = specops(*words)
        assert done.returncode == 2
        assert (
            "nothing was sent: the environment variables TENANT_B and KEY_B of speculative are not set"
        ) in done.stderr
        assert "hint: export TENANT_B=YOUR_SECRET KEY_B=YOUR_SECRET" in done.stderr
        assert gateway.standard.visitors == gateway.speculative.visitors == []


def test_doctor_asks_each_pool_with_its_own_secrets(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {check.name: check for check in deployment(load(gateway.file), gateway.file)}
    assert checks["standard endpoint"].status == checks["speculative endpoint"].status == "ok"
    assert refused(gateway.standard) == refused(gateway.speculative) == []
    monkeypatch.setenv("KEY_B", "sk-wrong-0001")
    checks = {check.name: check for check in deployment(load(gateway.file), gateway.file)}
    assert checks["standard endpoint"].status == "ok"
    failed = checks["speculative endpoint"]
    assert failed.status == "fail"
    url = gateway.speculative.base_url
    assert failed.found == f"{url}/models answered 401: it refused the API key in KEY_B"
    assert failed.fix == "export KEY_B=YOUR_KEY"
    monkeypatch.delenv("KEY_B")
    checks = {check.name: check for check in deployment(load(gateway.file), gateway.file)}
    assert "variable KEY_B of speculative is not set" in checks["speculative endpoint"].found


def test_monitoring_and_diagnosis_read_the_pools_with_their_secrets(gateway: Gateway) -> None:
    rollout = load(gateway.file)
    assert version_of(rollout) == "stub-1"
    server = gateway.speculative.base_url
    ScrapedPool({server: access_at(rollout, server).credentials()})
    assert refused(gateway.standard) == refused(gateway.speculative) == []
    # The secrets of the endpoint are not for an address that the rollout file gives beside it.
    assert access_at(rollout, "http://127.0.0.1:9/v1") == Access()


def test_prometheus_gets_the_certificates_and_a_note_about_the_secrets(gateway: Gateway) -> None:
    text = prometheus_config(load(gateway.file))
    standard, speculative, *_ = yaml.safe_load(text)["scrape_configs"]
    folder = gateway.folder
    assert standard["scheme"] == "https"
    assert standard["tls_config"] == {
        "ca_file": str(folder / "ca.pem"),
        "cert_file": str(folder / "client.pem"),
        "key_file": str(folder / "client.key"),
    }
    assert "tls_config" not in speculative
    assert "specops-gate-speculative: where /metrics needs the key in KEY_B" in text
    assert without_secrets(text)


def test_an_authority_that_is_not_known_is_named(gateway: Gateway) -> None:
    pools = gateway.pools()
    del pools["standard"]["ca_file"]
    done = specops("run", str(gateway.write(pools=pools)), "--only", "baseline", "--yes")
    assert done.returncode == 3
    assert f"standard ({gateway.standard.base_url}) has a certificate that this machine does not trust" in (
        done.stderr
    )
    assert "ca_file" in done.stderr
    assert gateway.standard.visitors == []


def test_a_client_without_its_certificate_is_not_served(gateway: Gateway) -> None:
    pools = gateway.pools()
    del pools["standard"]["client_cert"], pools["standard"]["client_key"]
    done = specops("run", str(gateway.write(pools=pools)), "--only", "baseline", "--yes")
    assert done.returncode == 3
    assert "client_cert of its pool" in done.stderr
    assert gateway.standard.visitors == []


def test_attached_endpoints_of_a_sweep_have_the_secrets_of_their_pool(gateway: Gateway) -> None:
    done = specops(
        "sweep",
        str(gateway.file),
        *("--attach", f"0={gateway.standard.base_url}", "--attach", f"3={gateway.speculative.base_url}"),
        *("--concurrency", "1"),
    )
    assert done.returncode in (0, 1, 4), done.stderr
    assert refused(gateway.standard) == refused(gateway.speculative) == []
    assert gateway.standard.requests
    assert gateway.speculative.requests


def test_init_writes_what_its_probes_were_sent_with(gateway: Gateway) -> None:
    folder, plain = gateway.folder, gateway.speculative
    plain.admits = admits("KEY_B", SECRETS["TENANT_A"])
    with running_stub() as other:
        other.admits = admits("KEY_A", SECRETS["TENANT_A"])
        done = specops(
            *("init", str(folder / "new"), "--base-url", other.base_url, "--base-url", plain.base_url),
            *("--api-key-env", "KEY_A", "--api-key-env", "KEY_B", "--header", "X-Tenant: ${TENANT_A}"),
        )
        assert done.returncode == 0, done.stderr
        assert refused(other) == refused(plain) == []
    text = (folder / "new" / "rollout.yaml").read_text()
    assert without_secrets(text)
    pools = load(folder / "new" / "rollout.yaml").pools
    first, second = pools.standard.endpoint, pools.speculative.endpoint
    assert first is not None
    assert second is not None
    assert (first.access.api_key_env, second.access.api_key_env) == ("KEY_A", "KEY_B")
    assert first.access.headers == {"X-Tenant": "${TENANT_A}"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--api-key-env", "KEY_A"), "--api-key-env is for endpoints: --base-url is missing"),
        (
            (*("--base-url", "http://a/v1") * 2, *("--api-key-env", "A") * 3),
            "--api-key-env is given 3 times for 2 endpoints",
        ),
        (
            (*("--base-url", "http://a/v1") * 2, "--header", "Authorization: Bearer abc"),
            "could not use --header: the value of the header Authorization may be a secret",
        ),
        (
            (*("--base-url", "http://a/v1") * 2, "--ca-file", "absent.pem"),
            "could not use --ca-file: ",
        ),
    ],
)
def test_init_refuses_what_no_endpoint_can_use(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = specops("init", str(tmp_path / "x"), *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Bearer abc" not in done.stderr


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"api_key_env": "sk-1234-abcd"}, "it is not the name of an environment variable"),
        ({"headers": {"Authorization": "Bearer sk-1234-abcd"}}, "Authorization may be a secret"),
        ({"headers": {"X-Api-Key": "sk-1234-abcd"}}, "X-Api-Key may be a secret"),
        ({"headers": {"X-Org": "sk-1234-abcd-5678-efgh"}}, "X-Org may be a secret"),
        ({"headers": {"X-Org": "${sk-1234-abcd"}}, "X-Org cannot be sent"),
        ({"headers": {"X-Org": "a\nX-Evil: sk-1234-abcd"}}, "X-Org cannot be sent"),
        ({"headers": {"Host": "sk-1234-abcd"}}, "specops sets the header Host itself"),
        ({"headers": {"X-Org": "a", "x-org": "b"}}, "is given twice"),
        ({"headers": {"Authorization": "Basic ${A}"}, "api_key_env": "B"}, "both say who asks"),
        ({"client_key": "key.pem"}, "client_key has no client_cert"),
        ({"ca_file": "key.pem"}, "ca_file has no effect at an address that begins with http://"),
    ],
)
def test_what_a_pool_cannot_have_is_refused_without_the_value(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    (tmp_path / "key.pem").write_text("x")
    pool = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    file = tmp_path / "rollout.yaml"
    file.write_text(
        yaml.safe_dump({"rollout": "r", "pools": {"standard": pool | fields, "speculative": pool}})
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert says in caught.value.message
    assert "sk-1234" not in f"{caught.value.message}{caught.value.hint}"


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not PEM")
    access = Access.model_validate({"ca_file": str(tmp_path / "ca.pem")})
    with pytest.raises(UsageError, match=r"could not use .*ca\.pem of standard: "):
        access.credentials("standard")


def test_credentials_do_not_show_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_A", "sk-1")
    monkeypatch.setenv("TOKEN", "sk-1-more")
    found = Access(api_key_env="KEY_A", headers={"X-T": "a ${TOKEN}"}).credentials()
    assert "sk-1" not in repr(found) + found.curl
    assert found.all_headers == {"Authorization": "Bearer sk-1", "X-T": "a sk-1-more"}
    assert found.blotted("sk-1-more and sk-1") == "*** and ***"
    assert found.curl == ' -H "Authorization: Bearer $KEY_A" -H "X-T: a ${TOKEN}"'


def test_a_header_of_its_own_takes_the_place_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "of-all")
    monkeypatch.setenv("LOGIN", "dXNlcg==")
    basic = Access(headers={"authorization": "Basic ${LOGIN}"}).credentials()
    assert basic.all_headers == {"Authorization": "Basic dXNlcg=="}
    assert Access().credentials().all_headers == {"Authorization": "Bearer of-all"}
    assert Access().credentials(api_key_env="LOGIN").api_key == "dXNlcg=="
    assert Credentials().all_headers == {}


def test_what_is_not_given_is_in_no_result() -> None:
    file = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    assert pool_of(file).model_dump(mode="json") == file


def test_a_key_and_a_certificate_do_not_count_as_another_server(gateway: Gateway) -> None:
    def inputs() -> tuple[dict[str, str], str]:
        rollout = load(gateway.file)
        pool = rollout.pools.standard
        return inputs_of(settings_of(rollout, pool), pool), identity(rollout)

    before, pools = inputs(), gateway.pools()
    (gateway.folder / "new.pem").write_bytes((gateway.folder / "ca.pem").read_bytes())
    pools["standard"] |= {"ca_file": "new.pem", "api_key_env": "KEY_B"}
    gateway.write(pools=pools)
    assert inputs() == before
    pools["standard"]["headers"] = {"X-Tenant": "${TENANT_B}"}
    gateway.write(pools=pools)
    assert inputs()[1] != before[1]


def test_a_redirect_takes_no_secret_to_another_host(gateway: Gateway) -> None:
    with running_stub() as other:

        def away(body: Body) -> Reply:
            return Reply([b""], 307, {"Location": f"{other.base_url}/completions"}, "text/plain")

        gateway.speculative.answer = away
        with pytest.raises(Exception, match=r"\(307\)"):
            canary(load(gateway.file), gateway.folder / "out", SilentProgress())
        assert other.visitors == []
