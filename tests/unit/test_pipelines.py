"""Files for pipelines and packages: their YAML parses, their commands exist, and exit codes decide."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import program
from guide_pages import ROOT, parts
from printed_commands import of_shell, problem

from specops import __version__

HOOKS = ROOT / ".pre-commit-hooks.yaml"
ACTION = ROOT / ".github" / "actions" / "specops" / "action.yml"
GITLAB = ROOT / ".gitlab" / "specops.gitlab-ci.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONTAINER = ROOT / "Containerfile"
FILES = [HOOKS, ACTION, GITLAB, *WORKFLOWS, ROOT / "CITATION.cff"]


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def scripts(node: Any) -> Iterator[str]:
    """The shell scripts in a YAML file: `run` of GitHub, `script` of GitLab, `entry` of a hook."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("run", "entry") and isinstance(value, str):
                yield value
            elif name in ("script", "before_script") and isinstance(value, list):
                yield from value
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts(value)


def of_hook() -> str:
    """The script of the hook, out of the quotes of `sh -c`."""
    shell, option, script, name = shlex.split(parsed(HOOKS)[0]["entry"])
    assert (shell, option, name) == ("sh", "-c", "specops-lint")
    return script


def step(name: str) -> str:
    (found,) = [one["run"] for one in parsed(ACTION)["runs"]["steps"] if one.get("name") == name]
    return str(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_yaml_without_keys_that_stand_twice(path: Path) -> None:
    root = yaml.compose(path.read_text(encoding="utf-8"))
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value]
            assert sorted(names) == sorted(set(names)), path
            pending += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value
    assert parsed(path)


SERVICES = [
    (ACTION, "github-actions"),
    *((path, "github-workflows") for path in WORKFLOWS),
    (GITLAB, "gitlab-ci"),
]


def complaints(path: Path, schema: str) -> str:
    """What the service's own schema says of a file; empty where it is right."""
    if importlib.util.find_spec("check_jsonschema") is None:
        reason = "check-jsonschema is not installed"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize(("path", "schema"), SERVICES, ids=lambda value: getattr(value, "name", value))
def test_a_file_is_of_its_services_own_schema(path: Path, schema: str) -> None:
    assert complaints(path, schema) == ""


@pytest.mark.parametrize(
    ("path", "schema", "right", "wrong"),
    [
        (ACTION, "github-actions", "composite", "compound"),
        (GITLAB, "gitlab-ci", "when: always", "when: ever"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_schemas_find_what_is_wrong(
    path: Path, schema: str, right: str, wrong: str, tmp_path: Path
) -> None:
    text = path.read_text(encoding="utf-8")
    assert right in text
    damaged = tmp_path / path.name
    damaged.write_text(text.replace(right, wrong), encoding="utf-8")
    assert complaints(damaged, schema) != ""


@pytest.mark.parametrize(
    ("path", "shell"),
    [(ACTION, "bash"), *((path, "bash") for path in WORKFLOWS), (GITLAB, "sh"), (HOOKS, "sh")],
    ids=lambda value: getattr(value, "name", value),
)
def test_shellcheck_finds_nothing_in_a_script(path: Path, shell: str) -> None:
    for script in scripts(parsed(path)):
        done = subprocess.run(
            [program("shellcheck"), f"--shell={shell}", "-"],
            input=script, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_every_command_in_them_is_one_that_specops_takes() -> None:
    texts = [of_hook(), *(script for path in FILES[1:] for script in scripts(parsed(path)))]
    calls = [words for text in texts for words in of_shell(text)]
    assert [(words, why) for words in calls if (why := problem(words)) is not None] == []
    assert len(calls) >= 12
    assert sum(words[:2] == ["launch", "lint"] for words in calls) == 3
    assert sum(words[:1] == ["run"] for words in calls) >= 4


def test_a_wrong_command_in_a_script_is_found() -> None:
    (words,) = of_shell('specops launch lint --files "$file"')
    assert problem(words) is not None


STAND_IN = """\
#!/bin/sh
echo "specops $*" >> "$CALLS"
for word; do last=$word; done
case "$last" in
  *bad*) exit 1 ;;
  *absent*) exit 3 ;;
  *open*) exit 4 ;;
esac
case "$*" in
  "run "*) exit "${RUN_CODE:-0}" ;;
  "checklist "*) exit "${RUN_CODE:-0}" ;;
esac
"""


def run(folder: Path, words: list[str], **variables: str) -> tuple[int, list[str]]:
    """The exit code of a script that finds a stand-in for specops, and the calls of it."""
    (folder / "bin").mkdir(exist_ok=True)
    stand_in = folder / "bin" / "specops"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    calls = folder / "calls"
    calls.write_text("")
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
    done = subprocess.run(words, cwd=folder, env=environment, check=False, timeout=30)
    return done.returncode, calls.read_text().splitlines()


LINTED = [
    (["good.sh"], 0),
    (["good.sh", "bad.sh", "good.sh"], 1),
    (["bad.sh", "open.sh"], 1),
    (["absent.sh"], 3),
    (["a b.sh", "$(touch x).sh"], 0),
]


@pytest.mark.parametrize(("files", "code"), [*LINTED, (["open.sh"], 0), (["open.sh", "bad.sh"], 1)])
def test_the_hook_fails_for_an_error_in_any_file(tmp_path: Path, files: list[str], code: int) -> None:
    words = [*shlex.split(parsed(HOOKS)[0]["entry"]), *files]
    assert run(tmp_path, words) == (code, [f"specops launch lint --file {file}" for file in files])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("files", "undecided", "code"),
    [*((files, "fail", code) for files, code in LINTED), (["open.sh"], "fail", 4), (["open.sh"], "pass", 0),
     (["open.sh", "bad.sh"], "pass", 1)],
)  # fmt: skip
def test_the_action_lints_each_line(tmp_path: Path, files: list[str], undecided: str, code: int) -> None:
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("Lint files that start servers")]
    variables = {"FILES": "\n".join(files) + "\n", "UNDECIDED": undecided}
    assert run(tmp_path, words, **variables) == (
        code,
        [f"specops launch lint --file {file}" for file in files],
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("exit_code", "undecided", "code"),
    [(0, "fail", 0), (1, "fail", 1), (1, "pass", 1), (3, "pass", 3), (4, "fail", 4), (4, "pass", 0)],
)
def test_the_action_gates_a_rollout(tmp_path: Path, exit_code: int, undecided: str, code: int) -> None:
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("Measure the rollout and decide")]
    output = tmp_path / "output"
    variables = {"ROLLOUT": "my rollout.yaml", "UNDECIDED": undecided, "RUN_CODE": str(exit_code)}
    ended, calls = run(tmp_path, words, GITHUB_OUTPUT=str(output), **variables)
    assert ended == code
    assert output.read_text() == f"exit-code={exit_code}\n"
    assert calls == [
        "specops run my rollout.yaml --yes",
        "specops checklist show my rollout.yaml --format github",
    ]


@pytest.mark.parametrize(
    ("files", "code"), [("good.sh", 0), ("bad.sh open.sh", 1), ("open.sh", 4), ("open.sh absent.sh", 3)]
)
def test_the_template_lints_each_file(tmp_path: Path, files: str, code: int) -> None:
    (script,) = parsed(GITLAB)["specops-lint"]["script"]
    assert run(tmp_path, ["sh", "-e", "-c", script], SPECOPS_FILES=files)[0] == code


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_template_gates_a_rollout(tmp_path: Path, code: int) -> None:
    (script,) = parsed(GITLAB)["specops-gate"]["script"]
    ended, calls = run(tmp_path, ["sh", "-e", "-c", script], SPECOPS_ROLLOUT="r.yaml", RUN_CODE=str(code))
    assert ended == code
    assert calls == ["specops run r.yaml --yes", "specops checklist show r.yaml --format junit"]
    assert (tmp_path / "specops-junit.xml").exists()
    assert parsed(GITLAB)[".specops"]["allow_failure"] == {"exit_codes": [4]}


def test_files_of_the_hook_are_those_that_start_servers() -> None:
    pattern = re.compile(parsed(HOOKS)[0]["files"])
    for name in (
        "serve.sh",
        "deploy/vllm-llama.service",
        "start-draft.yaml",
        "llama.container",
        "a/launch_8b.yml",
    ):
        assert pattern.search(name), name
    for name in ("README.md", "src/server.py", "observe.sh", "values.yaml", "vllm/notes.txt"):
        assert not pattern.search(name), name


def test_inputs_never_stand_in_a_script() -> None:
    """A name of a branch or file in an expression would be a part of the shell's text."""
    for path in (ACTION, *WORKFLOWS):
        for script in scripts(parsed(path)):
            assert "${{" not in script, path


def test_a_release_is_published_only_by_hand_and_without_a_token() -> None:
    release = parsed(ROOT / ".github" / "workflows" / "release.yml")
    jobs = release["jobs"]
    assert jobs["publish"]["needs"] == ["test", "attest"]
    assert "workflow_dispatch" in jobs["publish"]["if"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert (
        release[True]["workflow_dispatch"]["inputs"]["publish"]["default"] == "nowhere"
    )  # YAML 1.1: `on` is True
    assert release["permissions"] == {"contents": "read"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_the_containers_run_as_a_user_and_the_last_runs_specops() -> None:
    lines = re.sub(r"\\\n", " ", CONTAINER.read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    starts = [index for index, (name, _) in enumerate(steps) if name == "FROM"]
    build, router, last = (steps[begin:end] for begin, end in zip(starts, [*starts[1:], None], strict=True))
    assert build[0][1].endswith(" AS build")
    assert router[0][1].endswith(" AS router")
    for image in (router, last):
        assert dict(image)["USER"] not in ("0", "root")
    assert dict(router)["STOPSIGNAL"] == "SIGQUIT"  # NGINX finishes the requests that it has
    assert dict(last)["ENTRYPOINT"] == '["specops"]'
    for name, text in steps:
        if name == "COPY" and not text.startswith("--from"):
            *sources, _ = text.split()
            assert all((ROOT / source).exists() for source in sources), text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = " ".join(text for name, text in steps if name == "COPY").split()
    for needed in (*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "LICENSE"):
        assert needed.partition("/")[0] in copied, needed


def test_the_package_names_what_it_runs_on_and_the_citation_its_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert named == ["3.11", "3.12", "3.13"]
    for workflow in ("ci", "release"):
        jobs = parsed(ROOT / ".github" / "workflows" / f"{workflow}.yml")["jobs"]
        tested = [job["strategy"]["matrix"]["python-version"] for job in jobs.values() if "strategy" in job]
        assert tested == [named]
    citation = parsed(ROOT / "CITATION.cff")
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{citation['version']}] - {citation['date-released']}" in changes


def test_files_in_the_source_distribution_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists(), name


def test_examples_of_the_page_are_yaml_with_names_that_exist() -> None:
    _, blocks = parts(ROOT / "docs" / "pipelines.md")
    hook, action, gitlab = (yaml.safe_load(block.text) for block in blocks if block.language == "yml")
    assert hook["repos"][0]["hooks"][0]["id"] == parsed(HOOKS)[0]["id"]
    uses = action["jobs"]["rollout"]["steps"][1]
    assert (ROOT / re.sub(r"^OWNER/specops/(.*)@.*$", r"\1", uses["uses"]) / "action.yml") == ACTION
    assert set(uses["with"]) <= set(parsed(ACTION)["inputs"])
    assert (ROOT / gitlab["include"][0]["file"]) == GITLAB
    assert set(gitlab["variables"]) == set(parsed(GITLAB)["variables"])
