"""Commands in shell scripts: what the script says of its variables, and what it leaves open."""

from __future__ import annotations

import pytest

from specops.launch.command_files import commands_in, judge
from specops.launch.command_files.shell import commands

SERVE = "vllm serve org/m"


def words(script: str) -> list[list[str]]:
    return [list(command.words) for command in commands(script, "start.sh")]


CASES = {
    "a variable": ("MODEL=org/m\nvllm serve $MODEL", [SERVE]),
    "quotes": ("M='org/m'\nvllm serve \"$M\" --seed ${S:-1}", [f"{SERVE} --seed 1"]),
    "a variable of words": ('ARGS="--seed 1 -tp 2"\nvllm serve org/m $ARGS', [f"{SERVE} --seed 1 -tp 2"]),
    "an array": ('A=(--seed 1)\nA+=(-tp 2)\nvllm serve org/m "${A[@]}"', [f"{SERVE} --seed 1 -tp 2"]),
    "an empty array": ('A=()\nvllm serve org/m "${A[@]}"', [SERVE]),
    "an array of arrays": (
        'A=(--seed 1)\nB=("${A[@]}" -x)\nvllm serve org/m ${B[*]}',
        [f"{SERVE} --seed 1 -x"],
    ),
    "an array over lines": (
        "A=(\n  --seed 1  # why\n  -tp 2\n)\nvllm serve org/m ${A[@]}",
        [f"{SERVE} --seed 1 -tp 2"],
    ),
    "added text": ('A="--seed 1"\nA+=" -tp 2"\nvllm serve org/m $A', [f"{SERVE} --seed 1 -tp 2"]),
    "from outside": ("vllm serve $MODEL --seed ${SEED}", ["vllm serve $MODEL --seed $SEED"]),
    "from a command": (
        "N=$(nvidia-smi -L | wc -l)\nvllm serve org/m -tp $N",
        [f"{SERVE} -tp $(nvidia-smi -L | wc -l)"],
    ),
    "arguments": ('vllm serve "$1" "$@"', ["vllm serve $1 $@"]),
    "in a branch": ('S=1\nif [ -n "$X" ]; then S=2; fi\nvllm serve org/m --seed $S', [f"{SERVE} --seed $S"]),
    "within its branch": ("if true; then\n  S=2\n  vllm serve org/m --seed $S\nfi", [f"{SERVE} --seed 2"]),
    "in the other branch": (
        "S=1\nif x; then S=2; else vllm serve org/m --seed $S; fi",
        [f"{SERVE} --seed 1"],
    ),
    "added in a branch": (
        'A=(--seed 1)\nif x; then A+=(-tp 2); fi\nvllm serve org/m "${A[@]}"',
        [f"{SERVE} --seed 1 ${{A[@]}}"],
    ),
    "in a loop": ("for K in 3 5; do\n  vllm serve org/m --seed $K\ndone", [f"{SERVE} --seed $K"]),
    "a case": (
        "case $1 in\n  a) S=1;;\n  b) S=2;;\nesac\nvllm serve org/m --seed $S",
        [f"{SERVE} --seed $S"],
    ),
    "a function that is called": (
        'serve() {\n  local M=org/m\n  vllm serve $M "$@"\n}\nserve --seed 1',
        [f"{SERVE} --seed 1"],
    ),
    "a function that nobody calls": ('serve() {\n  vllm serve org/m "$@"\n}', [f"{SERVE} $@"]),
    "a group": ("{ S=1; }\nvllm serve org/m --seed $S", [f"{SERVE} --seed 1"]),
    "a comment": ("vllm serve org/m # --seed 1\n# vllm serve org/n", [SERVE]),
    "joined lines": ("vllm serve org/m \\\n  --seed 1 \\ \n  -tp 2", [f"{SERVE} --seed 1 -tp 2"]),
    "redirections": ("vllm serve org/m > log 2>&1 < /dev/null &", [SERVE]),
    "eval": ('eval "exec vllm serve org/m --seed 1"', [f"{SERVE} --seed 1"]),
    "a shell": ("ssh gpu1 bash -lc 'vllm serve org/m'", [SERVE]),
    "said": ("echo vllm serve org/m", []),
    "a here document for a shell": ("bash <<'EOF'\nvllm serve org/m\nEOF", [SERVE]),
    "one that writes a script": (
        "S=1\ncat > run.sh <<EOF\nvllm serve org/m --seed $S\nEOF\nls",
        [f"{SERVE} --seed 1"],
    ),
    "one that nothing fills in": (
        "S=1\ncat > run.sh <<'EOF'\nvllm serve org/m --seed $S\nEOF",
        [f"{SERVE} --seed $S"],
    ),
    "one about something else": ("cat <<EOF > notes.txt\nvllm serve org/m\nEOF", []),
    "an arithmetic loop": ("for ((i=0; i<2; i++)); do vllm serve org/m; done", [SERVE]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_script_is_read_as_bash_reads_it(name) -> None:
    script, wanted = CASES[name]
    assert [" ".join(command) for command in words(script)] == wanted


def test_json_keeps_its_quotes() -> None:
    keys = r"{\"method\": \"ngram\", \"num_speculative_tokens\": $K}"
    script = f'K=5\nvllm serve org/m --speculative-config "{keys}"'
    assert words(script)[0][-1] == '{"method": "ngram", "num_speculative_tokens": 5}'


def test_what_a_script_exports_is_around_its_commands() -> None:
    contained = "docker run vllm/vllm-openai:v0.33.0 --model m"
    script = f"export HF_TOKEN=hf_1 VLLM_USE_V1=0\nX=1\nA=2 vllm serve org/m\n{contained}"
    first, second = commands(script, "start.sh")
    assert first.environment == {"HF_TOKEN": "hf_1", "VLLM_USE_V1": "0"}
    assert first.words[0] == "A=2"
    assert second.environment == {}, "a container has what it is given"


def test_a_secret_of_a_script_is_warned_of_and_not_repeated() -> None:
    (command,) = commands("export HF_TOKEN=hf_1\nvllm serve org/m", "start.sh")
    judged = judge(command, "0.33.0")
    assert [finding.flag for finding in judged.findings] == ["HF_TOKEN"]
    assert "hf_1" not in str(judged)


def test_a_here_document_of_a_manifest_is_read_as_one(tmp_path) -> None:
    script = (
        "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "    - {name: c, image: 'vllm/vllm-openai:v0.32.0', args: [--model, org/m]}\nEOF\n"
    )
    (tmp_path / "up.sh").write_text(script)
    (command,) = commands_in(tmp_path / "up.sh")
    assert (command.where, command.version) == ("Pod p, container c", "0.32.0")
