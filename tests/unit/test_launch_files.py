"""Commands as people keep them: units, Quadlets, presets, templates, operators' objects, Python; and what of
a command was not read, which is never called clean."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from launch_files import Case, cases
from typer.testing import CliRunner

from specops.cli.app import app
from specops.errors import SpecopsError, UsageError
from specops.launch.command_files import commands_in, judge
from specops.launch.command_files.shell import commands as shell_commands

DEVELOPED = cases("developed")


@pytest.mark.parametrize("case", DEVELOPED, ids=str)
def test_a_public_file_is_judged_rightly(case: Case) -> None:
    assert case.faults() == []


MISSED = ("llmaz",)
"""Files of the second half whose form is still not read; that nothing is claimed of them is checked."""


# Files that no reader was written from; what the first run said of them is in LOG.md.
@pytest.mark.parametrize("case", cases("held_back"), ids=str)
def test_a_file_that_was_held_back(case: Case) -> None:
    if case.source.startswith(MISSED):
        assert case.judged()[1] in (2, 4)
    else:
        assert case.faults() == []


# Of a later round: what was wrong of them was repaired.
@pytest.mark.quick(12)
@pytest.mark.parametrize("case", cases("later"), ids=str)
def test_a_file_of_a_later_round(case: Case) -> None:
    assert case.faults() == []


def lint(folder: Path, name: str, text: str, **beside: str) -> tuple[int, str]:
    (folder / name).write_text(text, encoding="utf-8")
    for file, content in beside.items():
        (folder / file.replace("_dot_", ".")).write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["launch", "lint", "--file", str(folder / name)])
    return done.exit_code, done.stdout


KEYS = (
    "speculative-config: {method: eagle3, model: x/h, num_speculative_tokens: 3,"
    " draft_tensor_parallel_size: 2}"
)
CONFIG = f"model: Qwen/Qwen3-8B\n{KEYS}\ntensor-parallel-size: 4\n"


@pytest.mark.parametrize("value", ["--config vllm.yaml", "--config=vllm.yaml"])
def test_a_config_file_beside_the_script_is_read(tmp_path, value) -> None:
    code, page = lint(tmp_path, "start.sh", f"vllm serve {value} --port 8000\n", vllm_dot_yaml=CONFIG)
    assert code == 1
    assert "draft_tensor_parallel_size" in page


def test_a_word_of_the_command_outweighs_the_config_file(tmp_path) -> None:
    code, page = lint(tmp_path, "start.sh", "vllm serve --config vllm.yaml -tp 2\n", vllm_dot_yaml=CONFIG)
    assert (code, "error" in page) == (0, False)


COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.28.0
    command: [--config, /etc/vllm/config.yaml]
    volumes: ["./vllm.yaml:/etc/vllm/config.yaml:ro"]
"""
NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'
CLAIMED = f"vllm serve org/m --speculative-config '{NGRAM}'"
UNREAD = {
    # name: file, text, and what was not read
    "a config file that is not there": ("start.sh", "vllm serve --config gone.yaml\n", "gone.yaml"),
    "one of SGLang": ("s.sh", "python3 -m sglang.launch_server --config gone.yaml\n", "gone.yaml"),
    "one of TensorRT-LLM": ("t.sh", "trtllm-serve m --config gone.yaml\n", "gone.yaml"),
    "one in a container": ("compose.yaml", COMPOSE, "/etc/vllm/config.yaml"),
    "a preset": ("l.sh", "llama-server --models-preset gone.ini\n", "gone.ini"),
    "a variable for flags": ("start.sh", "vllm serve org/m $EXTRA\n", "$EXTRA"),
    "a value of speculation": ("start.sh", "vllm serve org/m --speculative-config $SPEC\n", "$SPEC"),
    "a key of speculation": (
        "start.sh",
        'vllm serve org/m --speculative-config "{\\"method\\": \\"$M\\", \\"num_speculative_tokens\\": 3}"\n',
        "$M",
    ),
    "arguments": ("start.sh", 'vllm serve org/m "$@"\n', "$@"),
    "an included file": ("start.sh", "source spec.env\nvllm serve org/m $FLAGS\n", "spec.env"),
    "one that exports flags": (
        "l.sh",
        "source spec.env\nllama-server -m m.gguf --metrics -np 2\n",
        "spec.env",
    ),
    "variables of a container": (
        "compose.yaml",
        "services: {l: {image: 'ghcr.io/ggml-org/llama.cpp:server-b11063', env_file: gone.env,"
        " command: -m m.gguf --metrics -np 2}}\n",
        "gone.env",
    ),
    "variables of a pod": (
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, args: [-m, m.gguf],"
        " image: 'ghcr.io/ggml-org/llama.cpp:server-b11063', envFrom: [{configMapRef: {name: flags}}]}]}\n",
        "flags",
    ),
    "a broken script": ("start.sh", "if x; then\nvllm serve org/m\n", "line 3"),
    "a fork": ("l.sh", "./ik_llama.cpp/build/bin/llama-server -m m.gguf\n", "ik_llama"),
    "a package in vLLM's place": ("o.sh", "vllm serve org/m --omni\n", "--omni"),
    "a speculator without its keys": (
        "isvc.yaml",
        "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata: {name: s}\nspec:\n"
        "  model: {uri: 'hf://org/m'}\n  speculator: {model: {uri: 'hf://org/d'}}\n"
        "  template: {containers: [{name: main, image: 'vllm/vllm-openai:v0.32.0'}]}\n",
        "spec.speculator",
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_was_not_read_is_unknown_and_not_clean(name, tmp_path) -> None:
    file, text, what = UNREAD[name]
    code, page = lint(tmp_path, file, text)
    assert code == 4
    assert "clean" not in page
    assert f"unknown  {what}" in page
    assert page.splitlines()[-1].count("unknown: ") == 1
    assert "find out: " in page


@pytest.mark.parametrize(
    "text",
    ["vllm serve $MODEL --port $PORT\n", "source .venv/bin/activate\nvllm serve org/m\n", f"{CLAIMED}\n"],
)
def test_what_cannot_hold_an_error_does_not_make_it_undecided(text, tmp_path) -> None:
    assert lint(tmp_path, "start.sh", text)[0] == 0


def test_an_issue_of_a_method_is_not_claimed_where_the_method_is_not_known(tmp_path) -> None:
    page = lint(tmp_path, "start.sh", "vllm serve Qwen/Qwen3.6-27B --speculative-config $SPEC\n")[1]
    assert "known issue" not in page
    page = lint(tmp_path, "start.sh", 'vllm serve $QWEN3.6 --speculative-config \'{"method": "mtp"}\'\n')[1]
    assert "vllm#53726" not in page


NOTHING = {
    "compose.yaml": ("services: {db: {image: postgres}}\n", "a Compose file"),
    "values.yaml": ("a: {{ .Values.x }}\n", "invalid YAML"),
    "chart.tpl": ("image: {{ .Values.image }}\n", "a template of Helm"),
    "main.tf": ('resource "helm_release" "x" {\n}\n', "Terraform"),
    "spec.env": ("MODEL=org/m\n", "a file of variables"),
    "metrics.txt": ("# HELP vllm:x y\n# TYPE vllm:x counter\nvllm:x 1\n", "metrics of a server"),
    "kustomization.yaml": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\n",
        "a kustomization",
    ),
    "app.service": ("[Service]\nExecStart=/usr/bin/nginx\n", "a systemd unit"),
    "web.container": ("[Container]\nImage=nginx\n", "a Quadlet"),
    "notes.py": ("print('hello')\n", "a Python source"),
    "start.sh": ("echo hello\n", "a script"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_file_without_a_command_is_named_and_something_runnable_given(name, tmp_path) -> None:
    text, says = NOTHING[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        commands_in(tmp_path / name)
    assert caught.value.hint


BATCH = 'llama-server.exe -m "C:\\\\my models\\\\m.gguf" ^\n  --spec-type mtp --metrics -np 2\n'


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("start.bat", BATCH.replace("\\\\", "\\"), 'llama-server ^\n    -m "C:/my models/m.gguf" ^\n'),
        ("start.ps1", BATCH.replace("\\\\", "\\").replace("^", "`"), "& llama-server `\n"),
    ],
)
def test_a_correction_is_written_for_the_shell_of_the_file(name, text, written, tmp_path) -> None:
    code, page = lint(tmp_path, name, text)
    assert code == 1
    assert written in page
    assert "--spec-type draft-mtp" in page


@pytest.mark.parametrize(
    ("pins", "version"),
    [
        ("pip install vllm==0.9.2\n", "0.9.2, as the file installs it"),
        ("pip install my-vllm==0.9.2\n", "the newest known"),
        ("# tried with vllm==0.9.2\n", "the newest known"),
        ("pip install vllm==0.9.2\npip install vllm==0.10.0\n", "the newest known"),
    ],
)
def test_a_version_that_the_file_installs(pins, version, tmp_path) -> None:
    assert version in lint(tmp_path, "start.sh", f"{pins}vllm serve org/m\n")[1]


def test_a_secret_of_the_env_file_is_not_printed(tmp_path) -> None:
    (tmp_path / ".env").write_text("VLLM_API_KEY=hunter2\nN=0\n")
    text = (
        "services: {v: {image: 'vllm/vllm-openai:v0.33.0', command: 'org/m --api-key ${VLLM_API_KEY}"
        " --num-lookahead-slots $N'}}\n"
    )
    code, page = lint(tmp_path, "compose.yaml", text)
    assert (code, "hunter2" in page) == (1, False)


PATCH = """\
- op: add
  path: /spec/template/spec/containers/0/args/-
  value: --speculative-config={"method":"eagle3","model":"x/h","num_speculative_tokens":3}
- op: add
  path: /spec/template/spec/containers/0/args/-
  value: --num-lookahead-slots=2
"""


def test_a_patch_is_judged_and_what_it_patches_is_unknown(tmp_path) -> None:
    code, page = lint(tmp_path, "patch.yaml", PATCH)
    assert code == 1
    assert "--num-lookahead-slots" in page
    assert "unknown  patches" in page


MERGED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec: {template: {spec: {containers: [{name: llm, args: [--num-lookahead-slots, "2", --max-num-seqs, "8"]}]}}}
"""


def test_a_patch_that_is_merged_is_judged_too(tmp_path) -> None:
    code, page = lint(tmp_path, "patch.yaml", MERGED)
    assert code == 1
    assert "--num-lookahead-slots" in page
    assert "unknown  patch:" in page


def test_a_file_that_a_command_prints_into_a_value_is_read(tmp_path) -> None:
    keys = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2}'
    text = 'vllm serve org/m --speculative-config "$(cat spec.json)"\n'
    code, page = lint(tmp_path, "start.sh", text, spec_dot_json=keys)
    assert (code, "prompt_lookup_min" in page) == (1, True)


def test_a_preset_with_comments_behind_its_settings(tmp_path) -> None:
    text = "[*]\nnp = 2  ; both\nmetrics = 1\n[a]  ; a model\nm = x.gguf  # here\nspec-type = mtp\n"
    code, page = lint(tmp_path, "models.ini", text)
    assert (code, "--spec-type mtp" in page, "--parallel" in page) == (1, True, False)


@pytest.mark.parametrize("variable", ["LLAMA_ARG_SPEC_TYPE", "LLAMA_ARG_NO_SUCH_FLAG"])
def test_a_variable_is_the_flag_that_the_build_binds_to_it(variable, tmp_path) -> None:
    text = f"{variable}=draft-simple llama-server -m m.gguf -md d.gguf --metrics -np 2\n"
    code, page = lint(tmp_path, "l.sh", text)
    assert code == (0 if variable.endswith("TYPE") else 1)
    assert ("warning  LLAMA_ARG_NO_SUCH_FLAG" in page) == variable.endswith("FLAG")


def test_a_word_outweighs_a_variable(tmp_path) -> None:
    text = "LLAMA_ARG_SPEC_TYPE=mtp llama-server -m m.gguf --spec-type draft-mtp --metrics -np 2\n"
    assert lint(tmp_path, "l.sh", text)[0] == 0


def test_a_corrected_variable_stays_one(tmp_path) -> None:
    image = "ghcr.io/ggml-org/llama.cpp:server-b11549"
    text = f"docker run -e LLAMA_ARG_SPEC_TYPE=mtp {image} -m m --metrics -np 2\n"
    page = lint(tmp_path, "l.sh", text)[1]
    assert "docker run -e LLAMA_ARG_SPEC_TYPE=draft-mtp ghcr.io" in page


def test_the_words_of_a_launcher_are_not_the_engines_and_are_not_lost(tmp_path) -> None:
    keys = '{"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'
    words = f"--model org/m -tp 4 --speculative-config '{keys}'"
    text = f"python3 -m dynamo.vllm {words} --dyn-tool-call-parser hermes\n"
    page = lint(tmp_path, "d.sh", text)[1]
    assert "dyn-tool-call-parser:" not in page
    corrected = page.partition("corrected:")[2]
    assert "python3 -m dynamo.vllm" in corrected
    assert "--dyn-tool-call-parser hermes" in corrected


PYTHON = """\
import subprocess
MODEL = "org/m"
args = ["vllm", "serve", MODEL]
if FAST:
    args += ["--num-lookahead-slots", "2"]
args.extend(["--port", str(8000)])
subprocess.Popen(args)
"""


def test_what_a_branch_of_python_may_add_is_unknown(tmp_path) -> None:
    code, page = lint(tmp_path, "serve.py", PYTHON)
    assert code == 4
    assert "unknown  $args" in page


# Property: the readers never crash, and lose no word of a simple command.

WORDS = st.lists(
    st.text(alphabet="abcXYZ019 -_./:='\"{}[],$\\@#~*?!%^&()<>|;\t", min_size=1, max_size=12), max_size=6
)


@given(words=WORDS)
def test_no_word_of_a_simple_command_is_lost(words) -> None:
    text = shlex.join(["vllm", "serve", *words])
    (command,) = shell_commands(text, "start.sh")
    assert list(command.words) == ["vllm", "serve", *words]


@given(text=st.text(alphabet="vlm sere$(){}[]'\"\\\n;|&<>=#`-EOFifthdone!*", max_size=80))
def test_a_shell_is_read_or_refused(text) -> None:
    _judged_or_refused("start.sh", f"vllm serve m\n{text}\n")


# fmt: off
KEY_NAMES = (
    "apiVersion", "kind", "spec", "metadata", "services", "command", "args",
    "image", "env", "envFrom", "containers", "models", "cmd", "macros",
    "inference", "config", "preset", "speculator", "template", "model", "patches",
    "resources", "data", "defaults", "applications",
)
# fmt: on
YAMLS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["vllm serve m", "llama-server -m m", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEY_NAMES),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
KINDS = st.sampled_from(
    [
        {},
        {"kind": "LLMInferenceService"},
        {"kind": "InferenceService", "apiVersion": "inference.llmkube.dev/v1alpha1"},
        {"kind": "Workspace", "apiVersion": "kaito.sh/v1beta1"},
        {"kind": "Kustomization", "apiVersion": "kustomize.config.k8s.io/v1beta1"},
        {"kind": "DynamoGraphDeployment"},
        {"kind": "RayService"},
        {"kind": "ConfigMap"},
    ]
)


@given(document=YAMLS, kind=KINDS)
def test_a_document_is_read_or_refused(document, kind) -> None:
    content = {**document, **kind} if isinstance(document, dict) else document
    _judged_or_refused("any.yaml", yaml.safe_dump(content))


@given(text=st.text(alphabet="[]Service Container Exec=Start Environment vllm -m$%{}\\\"'\n;#", max_size=120))
def test_a_unit_or_preset_is_read_or_refused(text) -> None:
    for name, head in (("a.service", "[Service]\nExecStart=vllm serve m "), ("a.ini", "[m]\nmodel = x\n")):
        _judged_or_refused(name, head + text)


@given(text=st.text(alphabet="cmd=[]+(\"vllm serve\", 'x')\n :if for in def{}", max_size=100))
def test_python_is_read_or_refused(text) -> None:
    _judged_or_refused("a.py", f"cmd = ['vllm', 'serve', 'm']\n{text}\nrun(cmd)\n")


def _judged_or_refused(name: str, text: str) -> None:
    from specops.launch.command_files import commands_in

    try:
        commands = commands_in(Path(name), text)
    except SpecopsError:
        return
    for command in commands:
        judge(command)


# What else a command gets from files around it.


def test_two_config_maps_with_a_file_of_one_name_are_told_apart(tmp_path) -> None:
    def worker(name: str) -> dict[str, object]:
        container = {
            "name": "main",
            "image": "vllm/vllm-openai:v0.32.0",
            "args": ["--config", "/etc/w/worker.yaml"],
            "volumeMounts": [{"name": "c", "mountPath": "/etc/w"}],
        }
        spec = {"containers": [container], "volumes": [{"name": "c", "configMap": {"name": name}}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def config(name: str, text: str) -> dict[str, object]:
        meta = {"metadata": {"name": name}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "data": {"worker.yaml": text}} | meta

    documents = [config("a", "num-lookahead-slots: 2"), config("b", "seed: 1"), worker("a"), worker("b")]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(documents))
    judged = [judge(command) for command in commands_in(tmp_path / "pods.yaml")]
    assert [[f.flag for f in one.findings if f.level == "error"] for one in judged] == [
        ["--num-lookahead-slots"],
        [],
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "./start.sh --num-lookahead-slots 2\n"),
        (
            "run.sh",
            "docker run --env-file flags.env -v $(pwd)/v.yaml:/v.yaml vllm/vllm-openai:v0.32.0"
            " --config /v.yaml\n",
        ),
        (
            "Dockerfile",
            'FROM vllm/vllm-openai:v0.32.0\nENTRYPOINT ["/app/start.sh"]\n'
            'CMD ["--num-lookahead-slots", "2"]\n',
        ),
    ],
)  # fmt: skip
def test_a_script_or_file_beside_is_followed(name, text, tmp_path) -> None:
    beside = {
        "start_dot_sh": 'exec vllm serve org/m "$@"\n',
        "v_dot_yaml": "num-lookahead-slots: 2\n",
        "flags_dot_env": "X=1\n",
    }
    code, page = lint(tmp_path, name, text, **beside)
    assert code == 1
    assert "--num-lookahead-slots" in page


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        (
            "l.sh",
            "docker run --env-file gone.env ghcr.io/ggml-org/llama.cpp:server-b11063 -m m --metrics -np 2\n",
            "gone.env",
        ),
        (
            "compose.yaml",
            "include: [other.yaml]\n"
            "services: {v: {image: 'vllm/vllm-openai:v0.32.0', command: org/m}}\n",
            "include",
        ),
        ("start.sh", "vllm serve org/m \\\n  # why\n  --speculative-config $X\n", "line 3"),
        (
            "isvc.yaml",
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s}\n"
            "spec: {predictor: {model: {modelFormat: {name: vLLM}, runtime: mine, storageUri: 'hf://org/m'}}}\n",
            "runtime mine",
        ),
    ],
)  # fmt: skip
def test_what_other_files_add_is_unknown(name, text, what, tmp_path) -> None:
    code, page = lint(tmp_path, name, text)
    assert code == 4
    assert f"unknown  {what}" in page


def test_a_known_issue_sees_variables_around_the_words(tmp_path) -> None:
    keys = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'
    text = f"export VLLM_TARGET_DEVICE=cpu\nvllm serve org/m --speculative-config '{keys}'\n"
    assert "vllm-cpu-mixed-temperatures" in lint(tmp_path, "start.sh", text)[1]
