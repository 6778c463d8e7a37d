"""What is wrong with a command of llama-server, by build: gone, renamed, ignored, and what else it reads."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import llamacpp_table
from calling import specops

from specops.errors import ConfigError
from specops.launch.command_files import command_of, commands_in, judge
from specops.serving import issues
from specops.serving.llamacpp.builds import table
from specops.serving.llamacpp.lint import corrected, lint

GOOD = "llama-server -m t.gguf --metrics -np 4"


def findings(words: str, build: int = 11549) -> list[tuple[str, str, str | None]]:
    found = lint(shlex.split(words), table().build(build))
    return [(one.level, one.flag, one.replacement) for one in found]


def fixed(words: str, build: int = 11549) -> str:
    fixed = corrected(shlex.split(words), table().build(build))
    return shlex.join(fixed.words()) if fixed else ""


@pytest.mark.parametrize(
    "more",
    [
        "",
        "-md d.gguf --spec-type draft-simple --spec-draft-n-max 8 -ngld 99",
        "--spec-type ngram-mod --spec-ngram-mod-n-max 16 --spec-ngram-mod-n-match 24",
        "--spec-type draft-mtp --spec-draft-n-max 3",
        "--spec-type ngram-simple,draft-simple --model-draft d.gguf",
        "--spec_type ngram-cache -ngl -1 -c 0 --jinja -fa on",
        "--control-vector-layer-range 1 2",
    ],
)
def test_a_good_command_has_no_findings(more) -> None:
    noted = {("note", issue.id, issue.workaround) for issue in issues()}
    assert set(findings(f"{GOOD} {more}")) <= noted
    assert fixed(f"{GOOD} {more}") == ""


@pytest.mark.parametrize(
    ("more", "build", "flag", "replacement", "after"),
    [
        # gone, with flags of its own for each type in its place
        ("-md d --spec-type draft-simple --draft-max 8", 11549, "--draft-max", "--spec-draft-n-max",
         "-md d --spec-type draft-simple --spec-draft-n-max 8"),
        ("-md d --draft 8", 9093, "--draft", "--spec-draft-n-max", "-md d --spec-draft-n-max 8"),
        ("--spec-type ngram-mod --draft-min 8", 11549, "--draft-min", "--spec-ngram-mod-n-min",
         "--spec-type ngram-mod --spec-ngram-mod-n-min 8"),
        ("--spec-type ngram-map-k --spec-ngram-size-m 8", 11549, "--spec-ngram-size-m",
         "--spec-ngram-map-k-size-m", "--spec-type ngram-map-k --spec-ngram-map-k-size-m 8"),
        ("--spec-ngram-size-n 8", 11549, "--spec-ngram-size-n", "leave it out", ""),
        ("-md d --spec-type draft-simple -cd 512", 11549, "-cd", "leave it out",
         "-md d --spec-type draft-simple"),
        ("--no-mmap", 11549, "--no-mmap", "--load-mode none", "--load-mode none"),
        # not there yet
        ("-md d --spec-draft-n-max 8", 8929, "--spec-draft-n-max", "--draft-max", "-md d --draft-max 8"),
        ("--spec-draft-model d", 8672, "--spec-draft-model", "--model-draft", "--model-draft d"),
        # names of types
        ("-md d --spec-type draft", 11549, "--spec-type draft", "draft-simple",
         "-md d --spec-type draft-simple"),
        ("-md d --spec-type ngram-mod,eagle3", 11549, "--spec-type eagle3", "draft-eagle3",
         "-md d --spec-type ngram-mod,draft-eagle3"),
        ("-md d --spec-type draft-simple", 9093, "--spec-type draft-simple", "leave it out", "-md d"),
        # loaded, and not used
        ("-md d", 9873, "-md", "--spec-type draft-simple", "-md d --spec-type draft-simple"),
        ("-md d --spec-type ngram-mod", 11549, "-md", "--spec-type ngram-mod,draft-simple",
         "-md d --spec-type ngram-mod,draft-simple"),
        # read otherwise than it looks
        ("--ctx-size=4096 --kv-unified", 11549, "--ctx-size", "--ctx-size 4096",
         "--ctx-size 4096 --kv-unified"),
        ("-fa --jinja", 11549, "-fa", "-fa on", "--jinja -fa on"),
        # chance in the place of the model
        ("--spec-type draft-mtp --spec-synth-len 3", 11549, "--spec-synth-len", "leave it out",
         "--spec-type draft-mtp"),
    ],
)  # fmt: skip
def test_an_error_and_what_to_write_instead(more, build, flag, replacement, after) -> None:
    assert ("error", flag, replacement) in findings(f"{GOOD} {more}", build)
    assert fixed(f"{GOOD} {more}", build) == f"{GOOD} {after}".strip()
    assert [one for one in findings(f"{GOOD} {after}", build) if one[0] == "error"] == []


@pytest.mark.parametrize(
    ("more", "level", "flag"),
    [
        ("--spec-type draft-simple", "error", "--spec-type draft-simple"),  # without a draft
        ("--spec-type turbo", "error", "--spec-type turbo"),
        ("--draft-model d.gguf", "error", "--draft-model"),  # no build ever had it
        ("--ctx-size", "error", "--ctx-size"),
        ("--jinja yes", "error", "--jinja"),
        ("--spec-draft-n-max 4", "warning", "--spec-draft-n-max"),
        ("--spec-type ngram-simple --spec-ngram-mod-n-max 4", "warning", "--spec-ngram-mod-n-max"),
        ("-md d --spec-type draft-simple --draft-p-split 0.1", "warning", "--draft-p-split"),
        ("--api-key secret", "warning", "--api-key"),
        ("-c 8192", "note", "--ctx-size"),
    ],
)
def test_findings_that_a_person_decides(more, level, flag) -> None:
    assert (level, flag) in [(found[0], found[1]) for found in findings(f"{GOOD} {more}")]


def test_what_no_build_has_is_matched_with_what_is_meant() -> None:
    assert ("error", "--draft-model", "--model-draft") not in findings(f"{GOOD} --draft-model d")
    assert ("error", "--spec-draft-n-maxx", "--spec-draft-n-max") in findings(f"{GOOD} --spec-draft-n-maxx 3")


def test_what_specops_needs_is_asked_for() -> None:
    found = findings("llama-server -m t.gguf")
    assert [one[1] for one in found] == ["--metrics", "--parallel"]
    assert fixed("llama-server -m t.gguf") == "llama-server -m t.gguf --metrics"


def test_the_context_of_a_request_is_said() -> None:
    (note,) = lint(shlex.split(f"{GOOD} -c 8192"), table().build(11549))
    assert note.why == "it is divided: each of 4 requests has 2048 tokens"
    assert findings(f"{GOOD} -c 8192 -kvu") == []


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b10068", "b10068"),
        ("ghcr.io/ggml-org/llama.cpp:server-b9294", "b9294"),
        ("ghcr.io/ggml-org/llama.cpp:server", "b11549"),
        ("ghcr.io/ggml-org/llama.cpp", "b11549"),
    ],
)
def test_a_container_is_judged_by_its_tag(image, version) -> None:
    words = f"docker run --rm -p 8080:8080 -v /models:/models {image} -m /models/t.gguf --draft-max 8"
    judged = judge(command_of(shlex.split(words)))
    assert (judged.engine, judged.version) == ("llama.cpp", version)
    assert [found.flag for found in judged.findings if found.level == "error"] == ["--draft-max"]
    assert judged.corrected is not None
    assert judged.corrected.startswith(f"docker run --rm -p 8080:8080 -v /models:/models {image} ")


def test_manifests_and_scripts_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n"
        "    image: ghcr.io/ggml-org/llama.cpp:server-b11549\n    args: [-m, t.gguf, -md, d.gguf]\n"
    )
    (command,) = commands_in(file)
    judged = judge(command)
    assert judged.version == "b11549"
    assert "-md" in [found.flag for found in judged.findings]
    script = tmp_path / "start.sh"
    script.write_text("LD_LIBRARY_PATH=/opt exec ./build/bin/llama-server -m t.gguf \\\n  --draft-max 4\n")
    assert [one.engine for one in commands_in(script)] == ["llamacpp"]


def test_a_build_between_two_of_the_table_is_judged_by_the_earlier_and_says_so() -> None:
    judged = judge(command_of(shlex.split(f"{GOOD} --jinja")), "b9000")
    assert judged.version == "b8929"
    assert judged.because == (
        "the nearest known before b9000, as requested, and what b9093 has too is not reported"
    )
    assert "newer than any known" in judge(command_of(shlex.split(GOOD)), "b99999").because
    drafting = command_of(shlex.split(f"{GOOD} -md d.gguf --spec-draft-n-max 3"))
    refused = [
        any(found.level == "error" for found in judge(drafting, number).findings)
        for number in ("b8929", "b9000", "b9093")
    ]
    assert refused == [True, False, False]
    assert judge(command_of(shlex.split(f"{GOOD} --spec-type draft-mtp")), "b9246").left == []
    with pytest.raises(ConfigError, match="b4000 is older than the first known build: expected b8672 to"):
        judge(command_of(shlex.split(GOOD)), "4000")


def test_the_command_prints_what_to_write() -> None:
    words = shlex.split(f"{GOOD} -md d --draft-max 8")
    done = specops("launch", "lint", "--engine-version", "b11549", "--", *words)
    assert done.returncode == 1
    assert "--spec-draft-n-max 8" in done.stdout
    assert "--spec-type draft-simple" in done.stdout


SOURCE = """
    add_opt(common_arg(
        {"-a", "--with-two"}, "A", "B, c", // a comment, with (a bracket
        "help \\"quoted\\", and more",
        [](common_params & params, const std::string & x, const std::string & y) { params.a = ','; }
    ));
    add_opt(common_arg({"-b", "--switch"}, {"-nb", "--no-switch"}, string_format("x %d", f(1, 2)), [](int) {}
    ).set_examples({LLAMA_EXAMPLE_CLI, LLAMA_EXAMPLE_SERVER}).set_env("B"));
    add_opt(common_arg({"--void"}, "help", [](common_params & p) { p.v = true; }));
    add_opt(common_arg({"--elsewhere"}, "N", "help", [](int) {}).set_examples({LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg({"--excluded"}, "N", "help", [](int) {}).set_excludes({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"--old"}, "N", "gone", [](int) { arg_removed("use --new"); }));
    add_opt(common_arg({"--common"}, "N", "help", [](int) {}).set_examples({LLAMA_EXAMPLE_COMMON}));
"""


def test_the_table_is_read_from_the_source() -> None:
    found = [(one.names, one.values, one.gone) for one in llamacpp_table.options(SOURCE)]
    assert found == [
        (("-a", "--with-two"), 2, None),
        (("-b", "--switch", "-nb", "--no-switch"), 0, None),
        (("--void",), 0, None),
        (("--old",), 1, "use --new"),
        (("--common",), 1, None),
    ]


def test_the_table_has_its_form() -> None:
    raw = json.loads(Path(llamacpp_table.TABLE).read_text(encoding="utf-8"))
    assert raw["builds"] == sorted(raw["builds"])
    assert len(raw["builds"]) >= 13
    assert table().history("--draft-max") == "b8672 to b8929"
    assert table().history("--spec-draft-n-max") == "b9093 and newer"
    assert table().type_history("draft-dspark") == "b10229 and newer"
    assert table().build(11549).gone["--draft-max"] == "use --spec-draft-n-max or --spec-ngram-mod-n-max"


def test_the_name_of_a_container_is_no_program() -> None:
    words = (
        "docker run --name llama-server -v /g:/g ghcr.io/ggml-org/llama.cpp:server-cuda-b11063 -m /g/t.gguf"
    )
    command = command_of(words.split())
    assert (command.engine, command.version) == ("llamacpp", "11063")
    judged = judge(command)
    assert judged.version == "b11063"
    assert "-v" not in {found.flag for found in judged.findings}
