"""The chart by real Helm: every manifest is of Kubernetes' own schemas, and what must not happen does not."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from charts import (
    CHART,
    RELEASE,
    ROOT,
    TOKEN_SECRET,
    Manifest,
    Manifests,
    helm,
    inline,
    pod_specs,
    refusal,
    render,
    rollout,
    values,
)
from daemons import program
from jsonschema import Draft7Validator

from specops import __version__
from specops.config import Rollout
from specops.phases.route import files_of

VERSIONS = ("1.25", kubernetes_validate.latest_version())
ROLLOUT = Rollout.model_validate(rollout())
KEYS = {"SPECOPS_API_KEY": "keys"}
RESOURCES = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}


def router_files(tmp_path: Path) -> dict[str, str]:
    """The router's files as the ConfigMap has them: without folders."""
    return {Path(name).name: text for name, text in files_of(ROLLOUT, tmp_path).items()}


def everything(tmp_path: Path) -> dict[str, Any]:
    """Every option of the chart, on or otherwise than by default."""
    return {
        "image": {"repository": "registry.example/specops", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": ["registry"],
        "rollout": inline(rollout()),
        "data": {"size": "5Gi", "storageClass": "fast"},
        "routerTokenSecret": TOKEN_SECRET,
        "guard": {"secrets": {**KEYS, "SPECOPS_GUARD_WEBHOOK": "chat"}, "resources": RESOURCES},
        "router": {
            "image": {"repository": "registry.example/router", "tag": "1", "pullPolicy": "Never"},
            "files": router_files(tmp_path),
            "service": {"type": "LoadBalancer", "annotations": {"cloud.example/internal": "true"}},
            "drainSeconds": 60,
            "switchVolume": {"size": "100Mi", "storageClass": "fast"},
            "resources": RESOURCES,
        },
        "report": {
            "schedule": "30 7 * * *",
            "timeZone": "Asia/Seoul",
            "secrets": {"SPECOPS_REPORT_WEBHOOK": "chat"},
            "resources": RESOURCES,
        },
        "run": {"enabled": True, "secrets": KEYS, "resources": RESOURCES},
        "serviceAccount": {"annotations": {"cloud.example/role": "none"}},
        "metrics": {
            "annotations": True,
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        },
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prom"}}}],
        },
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
    }


@pytest.fixture(scope="module")
def default() -> Manifests:
    return render(values())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    return render(everything(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def minimal() -> Manifests:
    """The guard alone, with everything that it needs made by others."""
    off = {"enabled": False}
    return render(
        values(
            router=off,
            report=off,
            routerTokenSecret="",
            data={"existingClaim": "runs"},
            serviceAccount={"existing": "specops"},
        )
    )


def test_the_default_the_full_and_the_minimal_release_have_these_objects(
    default: Manifests, full: Manifests, minimal: Manifests
) -> None:
    router = {
        ("StatefulSet", "mine-router"),
        ("Service", "mine-router"),
        ("Service", "mine-router-pods"),
        ("PodDisruptionBudget", "mine-router"),
    }
    guard = {("StatefulSet", "mine-guard"), ("Service", "mine-guard")}
    own = {("PersistentVolumeClaim", "mine-data"), ("ServiceAccount", "mine"), ("CronJob", "mine-report")}
    assert minimal.keys() == guard
    assert default.keys() == guard | router | own
    assert full.keys() == default.keys() | {
        ("ConfigMap", "mine-rollout"),
        ("ConfigMap", "mine-router"),
        ("CronJob", "mine-run"),
        *(("PodMonitor", f"mine-{name}") for name in ("guard", "router", "pools")),
        *(("NetworkPolicy", f"mine-{name}") for name in ("guard", "router", "jobs")),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("release", ["default", "full", "minimal"])
def test_every_manifest_is_of_kubernetes_own_schemas(
    release: str, version: str, request: pytest.FixtureRequest
) -> None:
    pod_monitor = json.loads((ROOT / "tests" / "schemas" / "podmonitor.json").read_text(encoding="utf-8"))
    for (kind, _), manifest in request.getfixturevalue(release).items():
        if kind == "PodMonitor":
            Draft7Validator(pod_monitor).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_helm_lints_the_chart(tmp_path: Path) -> None:
    for settings in (values(), everything(tmp_path)):
        done = helm(["lint", "--strict", str(CHART)], settings)
        assert done.returncode == 0, done.stdout


def test_there_is_one_guard_and_never_two(default: Manifests, full: Manifests) -> None:
    for manifests in (default, full):
        guards = [
            (kind, name)
            for kind, name in manifests
            if (spec := pod_specs({(kind, name): manifests[kind, name]}).get(name)) is not None
            and spec["containers"][0].get("args", [])[:2] == ["guard", "run"]
        ]
        # At most one pod, as Kubernetes promises it of a StatefulSet alone.
        assert guards == [("StatefulSet", "mine-guard")]
        spec = manifests[guards[0]]["spec"]
        assert spec["replicas"] == 1
        (claim,) = (v for v in spec["template"]["spec"]["volumes"] if v["name"] == "data")
        assert claim["persistentVolumeClaim"] == {"claimName": "mine-data"}
        assert manifests["PersistentVolumeClaim", "mine-data"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    for wrong in ({"replicas": 2}, {"enabled": True, "strategy": "RollingUpdate"}):
        assert "additional properties" in refusal(values(guard=wrong))


def test_no_secret_stands_in_a_manifest(full: Manifests) -> None:
    """Each comes from a Secret by its name. The ConfigMaps have the files of the values, and nothing more."""
    assert not [name for kind, name in full if kind == "Secret"]
    assert full["ConfigMap", "mine-rollout"]["data"].keys() == {"rollout.yaml"}
    for name, spec in pod_specs(full).items():
        (container,) = spec["containers"]
        for variable in container["env"]:
            if variable["name"] == "HOME":
                assert variable == {"name": "HOME", "value": "/tmp"}
            else:
                assert set(variable) == {"name", "valueFrom"}, name
                reference = variable["valueFrom"]["secretKeyRef"]
                assert reference["key"] == variable["name"]
    variables = {
        name: {variable["name"] for variable in spec["containers"][0]["env"]} - {"HOME"}
        for name, spec in pod_specs(full).items()
    }
    assert variables == {
        "mine-guard": {"SPECOPS_ROUTER_TOKEN", "SPECOPS_API_KEY", "SPECOPS_GUARD_WEBHOOK"},
        "mine-router": {"SPECOPS_ROUTER_TOKEN"},
        "mine-report": {"SPECOPS_REPORT_WEBHOOK"},
        "mine-run": {"SPECOPS_API_KEY"},
    }


def test_no_pod_is_root_or_writes_to_its_image(
    default: Manifests, full: Manifests, minimal: Manifests
) -> None:
    specs = [spec for manifests in (default, full, minimal) for spec in pod_specs(manifests).values()]
    assert len(specs) == 3 + 4 + 1
    for spec in specs:
        assert spec["automountServiceAccountToken"] is False
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
        user = spec["securityContext"]
        assert user["runAsNonRoot"] is True
        assert user["runAsUser"] == user["fsGroup"] == 10001
        assert user["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in spec["volumes"]} | {"switch"}
    account = full["ServiceAccount", "mine"]
    assert account["automountServiceAccountToken"] is False


def test_the_user_is_that_of_the_images() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001", "USER 10001"]


def test_selectors_select_the_pods_of_one_component(full: Manifests) -> None:
    pods = {
        (manifest["metadata"]["name"]): manifest["spec"].get(
            "template", manifest["spec"].get("jobTemplate", {}).get("spec", {}).get("template")
        )["metadata"]["labels"]
        for (kind, _), manifest in full.items()
        if kind in ("StatefulSet", "CronJob")
    }

    def selected(selector: Manifest) -> set[str]:
        return {name for name, labels in pods.items() if selector.items() <= labels.items()}

    assert selected(full["Service", "mine-guard"]["spec"]["selector"]) == {"mine-guard"}
    for name in ("mine-router", "mine-router-pods"):
        assert selected(full["Service", name]["spec"]["selector"]) == {"mine-router"}
    budget = full["PodDisruptionBudget", "mine-router"]["spec"]
    assert selected(budget["selector"]["matchLabels"]) == {"mine-router"}
    for name in ("guard", "router"):
        policy = full["NetworkPolicy", f"mine-{name}"]["spec"]
        assert selected(policy["podSelector"]["matchLabels"]) == {f"mine-{name}"}
        monitor = full["PodMonitor", f"mine-{name}"]["spec"]
        assert selected(monitor["selector"]["matchLabels"]) == {f"mine-{name}"}
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert endpoint["port"] in [
            port["name"] for port in pod_specs(full)[f"mine-{name}"]["containers"][0]["ports"]
        ]
    assert {labels["specops_rollout"] for labels in pods.values()} == {RELEASE}


def test_jobs_run_on_the_node_that_has_the_volume(full: Manifests, minimal: Manifests) -> None:
    guard = full["StatefulSet", "mine-guard"]["spec"]["template"]["metadata"]["labels"]
    for name in ("mine-report", "mine-run"):
        job = full["CronJob", name]["spec"]
        assert job["concurrencyPolicy"] == "Forbid"
        (term,) = pod_specs(full)[name]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["labelSelector"]["matchLabels"].items() <= guard.items()
        assert term["topologyKey"] == "kubernetes.io/hostname"
    assert full["CronJob", "mine-run"]["spec"]["suspend"] is True
    assert "suspend" not in full["CronJob", "mine-report"]["spec"]
    off = {"enabled": False}
    alone = pod_specs(render(values(guard=off, router=off, routerTokenSecret="")))
    assert alone.keys() == {"mine-report"}
    assert "affinity" not in alone["mine-report"]


def test_only_the_guard_and_monitoring_reach_the_switch(full: Manifests) -> None:
    clients, admin = full["NetworkPolicy", "mine-router"]["spec"]["ingress"]
    assert clients == {
        "ports": [{"port": "http"}],
        "from": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
    }
    assert admin["ports"] == [{"port": "admin"}]
    peers = [peer.get("podSelector", {}).get("matchLabels", {}) for peer in admin["from"]]
    assert [labels.get("app.kubernetes.io/component") for labels in peers] == ["guard", "run", None]
    assert "specops" not in str(admin["from"][2])
    assert "ingress" not in full["NetworkPolicy", "mine-jobs"]["spec"]


def test_new_files_start_new_pods(tmp_path: Path) -> None:
    def checksums(**changes: Any) -> dict[str, str]:
        manifests = render({**everything(tmp_path), **changes})
        return {
            name: manifest["spec"]["template"]["metadata"]["annotations"]["checksum/files"]
            for (kind, name), manifest in manifests.items()
            if kind == "StatefulSet"
        }

    before = checksums()
    changed = checksums(rollout=inline(rollout(guard={"attempts": 3})))
    assert changed["mine-guard"] != before["mine-guard"]
    assert changed["mine-router"] == before["mine-router"]


DATA = ["/etc/specops/rollout.yaml", "--out", "/var/lib/specops/run"]


def test_containers_run_these_commands(full: Manifests) -> None:
    commands = {name: spec["containers"][0].get("args") for name, spec in pod_specs(full).items()}
    assert commands == {
        "mine-guard": ["guard", "run", *DATA],
        "mine-report": ["report", *DATA],
        "mine-run": ["run", "--yes", *DATA],
        "mine-router": None,
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no rollout": ({"rollout": {"name": RELEASE}}, "/rollout"),
    "two rollouts": (
        {"rollout": {**inline(rollout()), "existingConfigMap": "mine"}},
        "/rollout",
    ),
    "no name": ({"rollout": {"existingConfigMap": "mine"}}, "/rollout/name"),
    "no rollout.yaml": ({"rollout": {"name": RELEASE, "files": {"a.yaml": "a"}}}, "rollout.yaml"),
    "a folder in a name": (
        {"rollout": {"name": RELEASE, "files": {"rollout.yaml": "a: 1", "a/b": "a"}}},
        "/rollout/files",
    ),
    "no token": ({"routerTokenSecret": ""}, "/routerTokenSecret"),
    "no router's files": ({"router": {}}, "/router"),
    "half of the router's files": ({"router": {"files": {"nginx.conf": "a"}}}, "rules.lua"),
    "no router": ({"router": {"existingConfigMap": "a", "replicas": 0}}, "/router/replicas"),
    "a key for a Secret's name": ({"guard": {"secrets": {"SPECOPS_API_KEY": "sk-Abc_1="}}}, "/guard/secrets"),
    "a variable with a value": ({"guard": {"env": {"SPECOPS_API_KEY": "x"}}}, "additional properties"),
    "the token twice": ({"guard": {"secrets": {"SPECOPS_ROUTER_TOKEN": "a"}}}, "SPECOPS_ROUTER_TOKEN"),
    "an unknown key": ({"reports": {"enabled": True}}, "additional properties"),
    "a time of cron": ({"report": {"schedule": "Mon 09:00"}}, "/report/schedule"),
    "everybody is monitoring": ({"networkPolicy": {"enabled": True, "monitoring": []}}, "/networkPolicy"),
    "no monitoring": ({"networkPolicy": {"enabled": True, "monitoring": None}}, "/networkPolicy"),
    "root": ({"guard": {"securityContext": {"runAsUser": 0}}}, "additional properties"),
    "not the file's name": ({"rollout": {**inline(rollout()), "name": "other"}}, "rollout.yaml has"),
    "no YAML": ({"rollout": {"name": RELEASE, "files": {"rollout.yaml": "a: ["}}}, "not YAML"),
    "a guard on loopback": (
        {"rollout": inline(rollout(guard={"listen": "127.0.0.1:9469"}))},
        "guard.listen in rollout.yaml is 127.0.0.1:9469",
    ),
    "half of the routers": (
        {"rollout": inline(rollout(routers=1))},
        "expected each of the 2 routers, [mine-router-0.mine-router-pods:8081, mine-router-1",
    ),
    "the Service of the routers": (
        {"rollout": inline(rollout(addresses={"routers": ["mine-router-pods:8081"]}))},
        "addresses.routers",
    ),
    "a router at another port": (
        {"rollout": inline(rollout(addresses={"routers": [
            f"mine-router-{number}.mine-router-pods:8080" for number in range(2)
        ]}))},
        "addresses.routers",
    ),
    "no Prometheus": (
        {"rollout": inline({**rollout(), "addresses": {"routers": []}})},
        "addresses.prometheus",
    ),
    "another interval": (
        {"rollout": inline(rollout(monitor={"scrape_interval_s": 5})),
         "metrics": {"podMonitor": {"enabled": True}}},
        "expected the same",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    assert message in refusal(values(**changes))


def test_a_router_on_loopback_is_refused(tmp_path: Path) -> None:
    files = {
        name: text.replace("listen 0.0.0.0:8081", "listen 127.0.0.1:8081")
        for name, text in router_files(tmp_path).items()
    }
    assert "does not listen on 0.0.0.0:8081" in refusal(values(router={"files": files}))


@pytest.mark.parametrize("suffix", ["", ".llm", ".llm.svc", ".llm.svc.cluster.local"])
def test_a_router_may_be_named_with_its_namespace(suffix: str) -> None:
    routers = [f"mine-router-{number}.mine-router-pods{suffix}:8081" for number in range(2)]
    render(values(rollout=inline(rollout(addresses={"routers": routers}))))


@pytest.mark.parametrize("release", ["a" * 53, "123", "1e3"])
def test_names_and_labels_are_those_that_kubernetes_takes(release: str) -> None:
    for (kind, name), manifest in render(values(), release=release).items():
        assert len(name) <= 63 - len("-0")
        if kind != "PodMonitor":
            kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_files_arrive_as_they_are(full: Manifests, tmp_path: Path) -> None:
    assert full["ConfigMap", "mine-router"]["data"] == router_files(tmp_path)
    text = 'a: "é$(x)\\n{{ .Values }}"\n\t# \x7f\n'
    more = {"rollout.yaml": yaml.safe_dump(rollout()), "prompts.json": text}
    manifests = render(values(rollout={"name": RELEASE, "files": more}))
    assert manifests["ConfigMap", "mine-rollout"]["data"] == more


def test_every_value_has_a_comment_and_a_place_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    default = yaml.safe_load(text)
    assert default.keys() == set(schema["required"])
    lines = text.splitlines()
    keys = 0
    for before, line in itertools.pairwise(lines):
        assert len(line) <= 120
        if re.match(r" *[A-Za-z]+:", line):
            keys += 1
            assert before.strip().startswith("#") or "  # " in line, line
    assert keys > 50


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_notes_show_commands_that_exist(tmp_path: Path) -> None:
    from printed_commands import problem

    done = helm(
        ["install", RELEASE, str(CHART), "--namespace", "llm", "--dry-run=client"], everything(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    for number in range(2):
        assert f"- mine-router-{number}.mine-router-pods.llm.svc:8081" in notes
    commands = [line.partition(" -- specops ")[2] for line in notes.splitlines() if " -- specops " in line]
    assert len(commands) == 3
    assert [problem(shlex.split(command)) for command in commands] == [None] * 3


def test_the_guide_installs_what_renders(tmp_path: Path) -> None:
    """The rollout file, the values and the options of Helm that docs/kubernetes.md shows, step by step."""
    from guide_pages import parts

    _, blocks = parts(ROOT / "docs" / "kubernetes.md")
    (file,) = (block.text for block in blocks if block.language == "yaml")
    (values_text,) = (block.text for block in blocks if block.language == "yml")
    (tmp_path / "values.yaml").write_text(values_text, encoding="utf-8")
    (tmp_path / "rollout.yaml").write_text(file, encoding="utf-8")
    (tmp_path / "prompts.json").write_text("[]", encoding="utf-8")
    lines = "\n".join(block.text for block in blocks if block.language == "sh").replace("\\\n", " ")
    commands = [shlex.split(line) for line in lines.splitlines() if line.startswith("helm ")]
    assert [words[1] for words in commands] == ["install", "upgrade", "upgrade"]
    options: list[str] = []
    objects = []
    for words in commands:
        release, chart, *more = words[2:]
        assert (release, ROOT / chart) == (RELEASE, CHART)
        options += [word for word in more if word != "--reset-then-reuse-values"]
        done = subprocess.run(
            [program("helm"), "template", release, str(CHART), *options],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        documents = [document for document in yaml.safe_load_all(done.stdout) if document]
        objects.append({(document["kind"], document["metadata"]["name"]) for document in documents})
    first, second, third = objects
    assert ("CronJob", "mine-run") in first
    assert ("StatefulSet", "mine-guard") in second - first
    assert ("StatefulSet", "mine-router") in third - second
    prose = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for _, name in third:
        if name.startswith("mine-") and ("StatefulSet", name) in third:
            assert f"`{name}`" in prose
