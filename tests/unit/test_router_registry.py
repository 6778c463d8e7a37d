"""The protocol of routers: a second one is a package and a line of the registry; general code names none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from specops.launch.servers import free_port
from specops.router import ROUTERS

ROOT = Path(__file__).parents[2]
POOL = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


def test_a_second_router_is_a_package_and_a_line_of_the_registry(tmp_path: Path) -> None:
    """Rendered, checked against a program of its own, explained, switched, read back, counted."""
    path, admin = tmp_path / "rollout.yaml", f"127.0.0.1:{free_port()}"
    sections = {
        "rollout": "r",
        "pools": {"standard": POOL, "speculative": POOL},
        "addresses": {"routers": [admin]},
        "route": {"admin": admin, "relay": {"backlog": 16}},
    }
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    script = Path(__file__).with_name("made_router.py")
    done = subprocess.run(
        [sys.executable, str(script), "walk", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    walked = json.loads(done.stdout)
    assert walked["rendered"]
    assert walked["routed"]["router"] == "relay"
    assert walked["routed"]["files"] == ["rendered/relay/relay.json"]
    assert walked["routed"]["limits"] == ["one server a pool"]
    assert "requests reached the expected pool; 300 random bodies matched" in walked["checked"]
    assert walked["from_files"] == "yes"
    assert walked["refused"] == "Relay refuses the backlog 0"
    assert walked["explained"] == "long"
    assert walked["doctor"].startswith("relay 1.0 (")
    assert "metrics_path: /stats" in walked["scraped"]
    assert (walked["before"], walked["after"]) == ([100, "long"], [0, "switch"])
    assert walked["switched"] == "done"
    assert walked["counted"]["speculative"] == 1
    assert walked["counted"]["standard"] >= 1
    assert "the sections nginx and relay are of several routers" in walked["two"]


def test_only_its_package_and_the_registry_name_a_router() -> None:
    """A comment of the server names NGINX, whose buffering it turns off."""
    package = ROOT / "specops" / "router"
    allowed = {package / "__init__.py", package / "protocol.py", ROOT / "specops" / "serve" / "responses.py"}
    for name in ROUTERS:
        naming = [
            str(path.relative_to(ROOT))
            for path in (ROOT / "specops").rglob("*.py")
            if path not in allowed
            and not path.is_relative_to(package / name)
            and name in path.read_text().lower()
        ]
        assert naming == []
