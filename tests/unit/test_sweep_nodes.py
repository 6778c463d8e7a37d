"""Which nodes of a cluster can serve the settings, how many servers at a time, and what they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops import __version__
from specops.config import Pool
from specops.errors import UsageError
from specops.load.settings import BaselineSettings
from specops.phases.sweep.ray_cluster import Node, NodePlacement, alike, alive, connected, names, needs_of
from specops.serving import Setting
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool
from specops.serving.vllm.pool import VllmPool

EMBEDDED = EmbeddedPool(engine="embedded")
COMMAND = CommandPool(engine="command", command="serve --port {port}")
ASKED = BaselineSettings(base_url="http://127.0.0.1:9/v1", model="m")


def vllm(gpus: int = 1, **fields: Any) -> VllmPool:
    return VllmPool(engine="vllm", model=fields.pop("model", "org/m"), tensor_parallel_size=gpus, **fields)


def settings(*pools: Pool) -> list[Setting]:
    return [Setting(f"s{number}", pool, 0) for number, pool in enumerate(pools)]


def node(name: str, cpus: int = 0, gpus: int = 0, kind: str = "", host: str = "") -> Node:
    resources = {"CPU": float(cpus), "GPU": float(gpus)} | ({f"accelerator_type:{kind}": 1.0} if kind else {})
    return Node(f"id-of-{name}", host or name, name, resources)


def test_of_what_ray_lists_the_dead_do_not_count() -> None:
    entry = {"NodeID": "1", "NodeManagerHostname": "a", "NodeName": "10.0.0.1", "Resources": {"CPU": 8.0}}
    listed = [entry | {"Alive": True}, entry | {"NodeID": "2", "Alive": False}]
    assert alive(listed) == [Node("1", "a", "10.0.0.1", {"CPU": 8.0})]


@pytest.mark.parametrize(
    ("pool", "place"),
    [
        (EMBEDDED, NodePlacement(gpus=0, cpus=64, count=1, kind="64 CPUs")),
        (COMMAND, NodePlacement(gpus=8, cpus=64, count=1, kind="H100")),
        (vllm(1), NodePlacement(gpus=1, cpus=8, count=8, kind="H100")),
        (vllm(2, pipeline_parallel_size=2), NodePlacement(gpus=4, cpus=32, count=2, kind="H100")),
        (vllm(3), NodePlacement(gpus=3, cpus=32, count=2, kind="H100")),
    ],
    ids=["embedded", "command", "one GPU", "four GPUs", "three GPUs"],
)
def test_what_a_server_takes_of_its_node(pool: Pool, place: NodePlacement) -> None:
    big = node("a", cpus=64, gpus=8, kind="H100")
    assert alike([big], settings(EMBEDDED if pool is EMBEDDED else pool, pool)) == ({big: place}, {})


def test_a_node_that_lacks_what_a_server_takes_is_left_out() -> None:
    head, small, big = node("head"), node("small", cpus=8, gpus=1), node("big", cpus=8, gpus=4)
    places, out = alike([head, small, big], settings(vllm(4)))
    assert list(places) == [big]
    assert out == {head: "has no CPUs to give", small: "has no 4 GPUs"}


def test_a_sweep_stays_with_the_kind_that_most_nodes_are_of() -> None:
    fast = [node(name, cpus=8, gpus=1, kind="H100") for name in "ab"]
    slow = node("c", cpus=8, gpus=1, kind="L4")
    places, out = alike([slow, *fast], settings(vllm()))
    assert list(places) == fast
    assert out == {slow: "has L4, and the sweep stays with nodes of H100"}
    small, *large = [node("a", cpus=4), node("b", cpus=16), node("c", cpus=16)]
    places, out = alike([small, *large], settings(EMBEDDED))
    assert list(places) == large
    assert out == {small: "has 4 CPUs, and the sweep stays with nodes of 16 CPUs"}


def test_a_kind_that_came_to_be_more_common_changes_nothing() -> None:
    first, *more = [node("a", cpus=4), node("b", cpus=16), node("c", cpus=16)]
    places, out = alike([first, *more], settings(EMBEDDED), "4 CPUs")
    assert (list(places), list(out)) == ([first], more)


def test_where_no_node_has_a_gpu_servers_are_built_for_cpus() -> None:
    plain = node("a", cpus=4)
    assert alike([plain], settings(vllm())) == ({plain: NodePlacement(0, 4, 1, "4 CPUs")}, {})


def test_nodes_are_called_by_their_host_with_more_where_that_is_not_enough() -> None:
    nodes = [node("n0", host="x"), node("n1", host="x"), node("n2", host="y")]
    assert names(nodes, {}) == {"id-of-n0": "x n0", "id-of-n1": "x n1", "id-of-n2": "y"}
    same = [Node(f"{digit * 12}", "x", "10.0.0.1", {}) for digit in "12"]
    assert list(names(same, {}).values()) == ["x 11111111", "x 22222222"]


def test_a_node_keeps_its_name_when_another_is_gone() -> None:
    nodes = [node("n0", host="x"), node("n1", host="x")]
    assert names(nodes[1:], names(nodes, {})) == {"id-of-n1": "x n1"}


def test_what_a_node_must_have(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    mine = EmbeddedPool.model_validate(
        {"engine": "embedded", "target": tmp_path, "speculation": {"draft": tmp_path / "draft"}}
    )
    engine = vllm(model=str(tmp_path), program="env A=1 vllm serve")
    needs = needs_of(settings(EMBEDDED, mine, COMMAND, engine, vllm()), ASKED)
    assert (needs.specops, needs.folder) == (__version__, str(Path.cwd()))
    assert needs.paths == [str(tmp_path), str(tmp_path / "draft")]
    assert needs.programs == ["env", "serve", "vllm"]


@pytest.mark.parametrize(
    "address", ["", "ray://", "ray://host", "host", "auto", "http://host:1", "ray://a:1/b"]
)
def test_what_is_no_address_of_ray(address: str) -> None:
    with pytest.raises(UsageError, match="invalid address of Ray") as caught, connected(address):
        pass
    assert caught.value.hint
