"""Serving engines: only specops/serving names them, and a new one is a package and a registry entry."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import specops

from specops.launch.command_files import command_of, judge
from specops.serving import ENGINES, USUAL, Startable, parameter, tables
from specops.serving.argv import version_behind
from specops.serving.llamacpp.builds import table as builds_of_llamacpp
from specops.serving.sglang.releases import table as releases_of_sglang
from specops.serving.vllm.versions import table as versions_of_vllm

SPECOPS = Path(__file__).parents[2] / "specops"
EXCEPTIONS = {
    "api.py": "the default of verify_draft's engine, which its signature states",
    "cli/verify_draft.py": "the default of --engine, which its help states",
    "edge/server_metrics.py": "the edge service is a server of its own, with vLLM's metric names",
    "guard/simulation/traces.py": "the playbook's own alert rules, word for word",
    "prometheus/series.py": "the playbook's names of recorded series, whichever engine serves",
    "serve/metrics.py": "the embedded engine's server, which exposes vLLM's metric names",
}
"""Modules that may hold an engine's name or metric prefix in a string, and why."""


def modules() -> list[Path]:
    return [path for path in SPECOPS.rglob("*.py") if SPECOPS / "serving" not in path.parents]


def names_in(path: Path) -> Iterator[str]:
    """Where a module outside specops/serving depends on which engine serves."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {engine.settings.__name__ for engine in ENGINES.values()}
    # The names of the others are words of their own: an endpoint, a command.
    engines = {name for name, engine in ENGINES.items() if engine.command_line is not None}
    prefixes = tuple(f"{series.prefix}:" for series in tables())
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in classes:
                yield f"{node.lineno}: {name}"
            case ast.ImportFrom(module=module) if module and module.startswith("specops.serving."):
                yield f"{node.lineno}: {module}"
            case ast.Constant(value=str(text)) if text in engines or text.startswith(prefixes):
                yield f"{node.lineno}: {text!r}"
            case ast.Compare() if compared(node) & ENGINES.keys():
                yield f"{node.lineno}: {ast.unparse(node)}"


def compared(node: ast.Compare) -> set[str]:
    """Strings that something called engine is compared with."""
    sides = [node.left, *node.comparators]
    if not any("engine" in ast.unparse(side) for side in sides):
        return set()
    return {
        part.value
        for side in sides
        for part in ast.walk(side)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def test_no_module_outside_serving_names_an_engine() -> None:
    found = {path.relative_to(SPECOPS).as_posix(): list(names_in(path)) for path in modules()}
    named = {path: lines for path, lines in found.items() if lines}
    assert {path: lines for path, lines in named.items() if path not in EXCEPTIONS} == {}
    assert named.keys() == EXCEPTIONS.keys(), "an exception that is not needed any more"


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(pool, VllmPool)",
        "pool.engine == 'embedded'",
        "data['engine'] in ('endpoint', 'x')",
        "name = 'sglang'",
        "gauge = 'vllm:num_requests_running'",
        "from specops.serving.vllm import ENGINE",
    ],
)
def test_the_search_finds(code, tmp_path) -> None:
    (tmp_path / "module.py").write_text(code)
    assert list(names_in(tmp_path / "module.py"))


def test_every_package_is_registered() -> None:
    folders = {path.parent.name for path in (SPECOPS / "serving").glob("*/__init__.py")}
    assert folders == ENGINES.keys()


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        ("/opt/venv/bin/vllm serve m", "vllm"),
        ("env A=b vllm serve m", "vllm"),
        ("/opt/venv/bin/python -m sglang.launch_server --model-path m", "sglang"),
        ("sudo docker run --gpus all lmsysorg/sglang:v0.5.20 --model-path m", "sglang"),
        ("docker run vllm/vllm-openai:v0.10.1 python -m sglang.launch_server --model-path m", "sglang"),
    ],
)
def test_the_engine_of_a_command(words, engine) -> None:
    assert command_of(shlex.split(words)).engine == engine


def test_a_version_that_is_named_counts_before_the_tag() -> None:
    command = command_of(shlex.split("docker run lmsysorg/sglang:v0.5.20 --model-path m"))
    judged = [judge(command), judge(command, "0.5.21")]
    assert [(one.version, one.because) for one in judged] == [
        ("0.5.20", "as the image's tag says"),
        ("0.5.21", "as requested"),
    ]


UNKNOWN = {
    "vllm": ("vllm serve m", "0.99.0", {"model": "m"}),
    "sglang": ("python -m sglang.launch_server --model-path m", "0.99.0", {"model_path": "m"}),
    "llamacpp": ("llama-server -m t.gguf", "b99999", {"model": "t.gguf"}),
    "trtllm": ("trtllm-serve m", "9.9.0", {"model": "m"}),
}


def test_every_engine_with_a_command_line_is_tried_below() -> None:
    assert UNKNOWN.keys() == {name for name, engine in ENGINES.items() if engine.command_line is not None}


@pytest.mark.parametrize("engine", UNKNOWN)
def test_a_version_that_is_not_known_is_said_to_be_judged_as_another(engine) -> None:
    words, version, _ = UNKNOWN[engine]
    found = judge(command_of(shlex.split(words)), version)
    assert version not in found.version
    assert version in found.because
    assert not any(version in finding.why for finding in found.findings if "issue" not in finding.why)
    done = specops("launch", "lint", "--engine-version", version, "--", *shlex.split(words))
    head, *rest = done.stdout.splitlines()
    assert f"{found.engine} {found.version}, " in head
    assert version in head
    assert not any(version in line for line in rest), "nothing is said of a version that was not judged"


@pytest.mark.parametrize("engine", UNKNOWN)
def test_an_unknown_version_is_rendered_with_a_warning_and_judged_as_another(engine) -> None:
    _, version, settings = UNKNOWN[engine]
    pool = ENGINES[engine].settings.model_validate({"engine": engine, "version": version} | settings)
    assert isinstance(pool, Startable)
    made = pool.rendering(8000, "m")
    assert made.judged is not None
    assert version not in made.judged
    (warning,) = [note for note in made.notes if note.level == "warning"]
    assert version in warning.why
    assert made.judged.rpartition(" ")[2] in warning.why


ROLLOUT = """\
rollout: made
pools:
  standard: {engine: quick, model: org/m, gpu_count: 2}
  speculative: {engine: quick, model: org/m, gpu_count: 2, speculation: {draft: org/d}}
addresses: {standard: ["a:8000"], speculative: ["b:8000"]}
sweep: {k: [0, 2, 3]}
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What specops makes of an engine that is one module and one entry in the registry."""
    file = tmp_path_factory.mktemp("made") / "made.yaml"
    file.write_text(ROLLOUT)
    script = Path(__file__).with_name("made_engine.py")
    done = subprocess.run(
        [sys.executable, str(script), str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_new_engine_is_configured_and_rendered(walked) -> None:
    assert walked["schema"]
    assert walked["stored"]["speculation"] == {"draft": "org/d", "ahead": 4}
    assert walked["commands"]["standard"] == [
        "quick-server",
        "-m",
        "org/m",
        "--host",
        "127.0.0.1",
        "--port",
        "8000",
    ]
    assert walked["commands"]["speculative"][-4:] == ["-d", "org/d", "--ahead", "4"]
    assert walked["findings"] == ["--ahead"], "its own lint judged the command"
    assert "rendered/kubernetes/speculative.yaml" in walked["files"]
    assert "quick/quick:1.2" in walked["compose"]


def test_a_command_of_a_new_engine_is_recognised(walked) -> None:
    judged = walked["judged"]
    assert (judged["engine"], judged["version"]) == ("Quick", "2.0")
    assert [found["flag"] for found in judged["findings"]] == ["--ahead"]


def test_the_metrics_of_a_new_engine_are_recorded_and_counted(walked) -> None:
    assert walked["prefixes"] == ["quick"]
    assert "quick:drafted_total" in walked["needs"]
    assert "quick:drafted_total" in walked["rules"]
    assert "vllm:e2e" not in walked["rules"]
    assert "quick_(.+)" in walked["scrape"]
    assert walked["drafts"] == 2.0
    assert walked["counts"] == {
        "drafts": 2.0,
        "draft_tokens": 8.0,
        "accepted_tokens": 6.0,
        "accepted_per_position": [],
        "estimated": False,
    }
    assert walked["in flight"] == 1.0
    assert walked["generated"], "a gateway in front of it is told from it"


def test_a_new_engine_is_swept_and_routed(walked) -> None:
    assert walked["settings"] == {
        "standard": None,
        "k=2": {"draft": "org/d", "ahead": 2},
        "k=3": {"draft": "org/d", "ahead": 3},
    }
    assert walked["method"] == [None, "quick", "quick"]
    assert "min_p" in walked["routes"]
    assert "logit_bias" not in walked["routes"], "vLLM's refusals are not this engine's"


def test_a_request_parameter_has_the_name_that_the_engine_gives_it() -> None:
    series = ENGINES["llamacpp"].namings["llamacpp"]
    assert parameter("repetition_penalty", series) == "repeat_penalty"
    assert parameter("repetition_penalty", USUAL) == "repetition_penalty"
    assert parameter("presence_penalty", series) == "presence_penalty"


def test_a_program_says_which_version_of_a_package_it_runs() -> None:
    called = ["env", "A=1", sys.executable, "-m", "some.server"]
    assert version_behind(called, ("not-there", "pytest")) == pytest.__version__
    assert version_behind(called, ("not-there",)) is None
    assert version_behind(["no-such-program", "serve"], ("pytest",)) is None


def test_the_guides_table_of_engines_has_the_versions_of_the_lints_tables() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "configure.md").read_text(encoding="utf-8")
    judged = versions_of_vllm().judged
    releases, builds = releases_of_sglang().versions, builds_of_llamacpp().builds
    ranges = {
        "vllm": (str(judged[0]), str(judged[-1])),
        "sglang": (releases[0], releases[-1]),
        "llamacpp": (f"b{builds[0]}", f"b{builds[-1]}"),
    }
    rows = {row.split("`")[1]: row for row in guide.splitlines() if row.startswith(("| `", "| [`"))}
    for engine, (oldest, newest) in ranges.items():
        assert f"{oldest} to {newest}" in rows[engine]
    assert rows.keys() >= ENGINES.keys() - {"endpoint"}
