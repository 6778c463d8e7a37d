"""Everything that specops proposes passes its own lint, known issues and the release's rules; no two findings
of a page contradict."""

from __future__ import annotations

import re
import shlex
from functools import partial

import pytest
from real_commands import cases

from specops.launch.command_files import command_of, judge
from specops.serving import ENGINES, ServedPair, issues
from specops.serving.argv import Finding, settled
from specops.serving.known_issues import IDENTITY
from specops.serving.llamacpp import builds
from specops.serving.sglang import releases as sglang_releases
from specops.serving.trtllm import releases as trtllm_releases
from specops.serving.vllm import arguments, versions
from specops.serving.vllm import lint as vllm
from specops.serving.vllm.rules import RULES as VLLM_RULES

SPEC = "--speculative-config"
KEYS = (
    '{"method": "mtp", "num_speculative_tokens": 4, "disable_by_batch_size": 16}',
    '{"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 2}',
    '{"method": "deepseek_mtp", "num_speculative_tokens": "2", "tensor_parallel_size": 1}',
    '{"model": "x/eagle3-d"}',
    '{"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2, "acceptance_method": "typical"}',
    '{"method": "draft_model", "model": "d", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true,'
    ' "draft_sample_method": "probabilistic", "synthetic_acceptance_length": 2}',
)
FLAGS = (
    "--speculative-disable-by-batch-size 8 --num-speculative-tokens 5 --speculative-model d",
    "--async-scheduling -tp 4 --use-v2-block-manager --enable-chunked-prefill true",
    "-pp 2 --no-enable-prefix-caching -O.level=3",
    "--speculative-draft-tensor-parallel-size 1 --ngram-prompt-lookup-max 4",
)
VLLM = [
    ["vllm", "serve", ("org/m", "Qwen/Qwen3.8-27B")[(i + j) % 2], *shlex.split(flags), SPEC, keys]
    for i, flags in enumerate(FLAGS)
    for j, keys in enumerate(KEYS)
]
SGLANG = [
    shlex.split(f"python -m sglang.launch_server --model-path m {words}")
    for words in (
        "--speculative-algorithm eagle3 --speculative-num-steps 3",
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/gemma-4-31B-it-assistant"
        " --lora-paths a=/a",
        "--speculative-algorithm EAGLE --speculative-draft d --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 8 --enable-mixed-chunk"
        " --lora-paths a=/a --speculative-adaptive",
        "--speculative-algorithm NGRAM --speculative-use-rejection-sampling --enable-dp-attention",
    )
]
LLAMACPP = [
    shlex.split(f"llama-server -m m.gguf {words}")
    for words in (
        "-md d.gguf --draft-max 8 --draft-min 2 --ctx-size-draft 512 --no-mmap",
        "-md d.gguf --spec-type mtp --spec-draft-n-max 3 --draft-max 8 -fa --metrics",
        "--spec-type ngram-mod --spec-ngram-size-n 8 --spec-draft-p-split 0.1 --spec-synth-len 2",
    )
]
TABLES = {
    "vllm": [str(version) for version in versions.table().judged],
    "sglang": list(sglang_releases.table().versions),
    "llamacpp": [f"b{number}" for number in builds.table().builds],
    "trtllm": [str(version) for version in trtllm_releases.table().versions],
}
COMMANDS = {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMACPP}


def spread(values: list[str], count: int) -> list[str]:
    """Return `count` of the values, evenly spread, the first and the last among them."""
    return (
        [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
        if len(values) > count
        else values
    )


def errors(findings: list[Finding]) -> set[str]:
    return {finding.flag for finding in findings if finding.level == "error"}


VERSIONS = [(engine, version) for engine in COMMANDS for version in spread(TABLES[engine], 3)]
ALL = [
    (engine, version)
    for engine in COMMANDS
    for version in TABLES[engine]
    if (engine, version) not in VERSIONS
]


def named(findings):
    """The issues that the lines name, by themselves or beside a rule of the lint."""
    return {issue.id for issue in issues() for f in findings if issue.id == f.flag or issue.source in f.why}


@pytest.mark.parametrize(
    ("engine", "version"), [*VERSIONS, *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL)]
)
def test_what_is_corrected_has_no_error_that_a_rule_could_fix_and_no_new_issue(engine, version) -> None:
    shown = (issue for issue in issues() if not issue.device)  # no command shows a device
    known = {issue.id for issue in shown if not issue.when.keys() <= set(IDENTITY)}
    for words in COMMANDS[engine]:
        before = judge(command_of(words), version)
        if before.corrected is None:
            continue
        again = judge(command_of(shlex.split(before.corrected.replace("\\\n", " "))), version)
        assert again.corrected is None, (words, again.corrected)
        assert errors(again.findings) == errors(before.left), words
        # No issue comes from what was proposed. One of the method may, which is only now read.
        new = named(again.findings) & known - named(before.findings)
        assert new == set(), (words, new)


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_no_workaround_of_a_page_is_wrong_for_its_command(engine, version) -> None:
    by_id = {issue.id: issue for issue in issues()}
    for words in COMMANDS[engine]:
        page = judge(command_of(words), version)
        for finding in page.findings:
            issue = by_id.get(finding.flag)
            if issue is None or finding.replacement is None or not issue.workaround_words:
                continue
            after = judge(command_of([*words, *issue.workaround_words]), version)
            assert errors(after.findings) <= errors(page.findings), (words, finding)
            there = {f.flag for f in page.findings}
            assert not [f.flag for f in after.findings if f.flag in by_id and f.flag not in there], (
                words,
                finding,
            )


def test_async_scheduling_is_not_turned_off_where_the_table_calls_that_wrong() -> None:
    keys = '{"method": "mtp", "num_speculative_tokens": 2}'
    alone = judge(command_of(["vllm", "serve", "Qwen/Qwen3.8-27B", SPEC, keys]), "0.28.0")
    spread_out = judge(command_of(["vllm", "serve", "Qwen/Qwen3.8-27B", "-pp", "2", SPEC, keys]), "0.28.0")
    advice = [{f.flag: f.replacement for f in page.findings}["vllm#53726"] for page in (alone, spread_out)]
    assert advice == ["--no-async-scheduling", None]


@pytest.mark.parametrize("version", ["0.24.0", "0.29.0", "0.33.0"])
@pytest.mark.parametrize("flag", [False, True])
def test_no_schedule_is_proposed_where_it_collapses(version, flag) -> None:
    old = "" if flag else ', "disable_by_batch_size": 16'
    words = ["vllm", "serve", "m", SPEC, f'{{"method": "mtp", "num_speculative_tokens": 4{old}}}']
    page = judge(
        command_of([*words, *(["--speculative-disable-by-batch-size", "16"] if flag else [])]), version
    )
    texts = [page.corrected or "", *(f.replacement or "" for f in page.findings)]
    assert not any("per_batch_size" in text for text in texts)


def test_a_schedule_is_proposed_where_nothing_is_known_against_it(monkeypatch) -> None:
    from specops.serving import known_issues

    kept = tuple(issue for issue in known_issues.issues() if issue.id != "vllm#49548")
    monkeypatch.setattr(known_issues, "issues", lambda: kept)
    words = ["vllm", "serve", "m", SPEC, KEYS[0]]
    assert "per_batch_size" in (judge(command_of(words), "0.29.0").corrected or "")


def test_a_sweep_proposes_no_schedule_that_has_a_known_issue() -> None:
    pool = ENGINES["vllm"].settings.model_validate(
        {"engine": "vllm", "model": "m", "version": "0.29.0",
         "speculation": {"method": "ngram", "num_speculative_tokens": 3}}
    )  # fmt: skip
    assert pool.against_schedule([[1, 4, 3], [5, 64, 0]]) == ["vllm#49548"]
    assert pool.against_schedule([[1, 4, 3], [5, 64, 1]]) == []


def test_a_fix_that_brings_an_issue_is_dropped_for_what_is_otherwise() -> None:
    given = arguments.ParsedCommand.parse(["vllm", "serve", "m", SPEC, KEYS[0]])
    release = versions.table().release(versions.Version.parse("0.29.0"))
    free, _ = settled(given, release, VLLM_RULES)
    checked, _ = settled(given, release, VLLM_RULES, partial(vllm._objections, release=release))
    proposals = [
        next(f.replacement for f in found if f.flag.endswith("disable_by_batch_size"))
        for found in (free, checked)
    ]
    assert "per_batch_size" in str(proposals[0])
    assert "per_batch_size" not in str(proposals[1])


WORKAROUNDS = [issue for issue in issues() if issue.workaround_words]


@pytest.mark.parametrize("issue", WORKAROUNDS, ids=lambda issue: issue.id)
def test_a_workaround_that_begins_with_a_flag_is_words_of_some_release(issue) -> None:
    tables = {
        "vllm": lambda flag: versions.table().history("flags", flag),
        "sglang": lambda flag: sglang_releases.table().history("flags", flag),
        "llamacpp": builds.table().history,
        "trtllm": lambda flag: trtllm_releases.table().having(flag),
    }
    flags = [word.partition("=")[0] for word in issue.workaround_words if word.startswith("--")]
    assert flags
    for flag in flags:
        positive = f"--{flag.removeprefix('--no-')}"
        assert tables[issue.engine](flag) or tables[issue.engine](positive), flag


FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_a_flag_that_advice_names_exists_in_that_release(engine) -> None:
    known = {
        "vllm": lambda version: versions.table().release(versions.Version.parse(version)).flags,
        "sglang": lambda version: sglang_releases.table().release(version).flags,
        "llamacpp": lambda version: builds.table().build(builds.parse(version)).flags.keys(),
    }[engine]
    for version in spread(TABLES[engine], 2):
        flags = set(known(version))
        for words in COMMANDS[engine][::2]:
            for finding in judge(command_of(words), version).findings:
                for flag in FLAG.findall(finding.replacement or ""):
                    positive = f"--{flag.removeprefix('--no-')}"
                    assert flag in flags or positive in flags, (version, finding)


REAL = [case for engine in ("vllm", "sglang", "llamacpp") for case in cases(engine) if case.file is None]


@pytest.mark.parametrize("case", REAL[::9], ids=str)
def test_two_findings_of_a_page_do_not_contradict(case) -> None:
    """What is proposed together is judged together: nothing that one proposes is what another is about."""
    page = case.judged()
    if page.corrected is None or page.corrected.startswith("cat "):
        return
    again = judge(command_of(shlex.split(page.corrected.replace("\\\n", " "))), case.version)
    assert errors(again.findings) <= errors(page.left)


DRAFTED = [
    (name, kind, version)
    for name, engine in ENGINES.items()
    if engine.drafts is not None and name in ("vllm", "sglang")
    for kind in engine.drafts.methods
    # SGLang's other releases are judged by the newest; 0.8.2 is vLLM's first with --speculative-config.
    for version in (spread(TABLES[name][2:], 5) if engine.drafts.versions == "all" else [TABLES[name][-1]])
]


@pytest.mark.parametrize(("name", "kind", "version"), DRAFTED)
def test_how_a_pair_is_served_passes_the_lint(name, kind, version) -> None:
    drafts = ENGINES[name].drafts
    assert drafts is not None
    numbers = tuple(int(part) for part in version.split("."))
    rule = next(rule for rule in drafts.rules if kind in rule.kinds and numbers >= rule.since)
    if rule.does != "works":
        return
    draft = None if kind in ("ngram", "suffix", "mtp") else "org/draft"
    settings = {"prompt_lookup_max": 4} if (name, kind) == ("vllm", "ngram") else {}
    text = drafts.describe_serving(ServedPair("org/m", draft, drafts.methods[kind], 3, settings)).partition(
        ", and"
    )[0]
    words = {"vllm": "vllm serve org/m", "sglang": "python -m sglang.launch_server --model-path org/m"}[name]
    page = judge(command_of([*shlex.split(words), *shlex.split(text)]), version)
    assert [f for f in page.findings if f.level == "error"] == []
