"""What several test files need: a tiny random pair of models that loads in milliseconds."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import fork_server
from hypothesis import settings
from suite_report import SuiteReport

from specops.errors import SpecopsError
from specops.hints import PROGRAMS

# Without a GPU, kernels run in Triton's interpreter. Triton asks when it is imported, as torch may do early.
if not (Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists()):
    os.environ["TRITON_INTERPRET"] = "1"

# Where tests run side by side, a second thread for tiny tensors would spin while it waits for the first.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every machine, however slow it is: no test depends on the clock or on luck.
# `make test-slow` runs the property tests again, with `--hypothesis-profile full`.
settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=30)
settings.register_profile("full", deadline=None, derandomize=True, database=None, max_examples=200)
settings.load_profile("quick")

# What is imported and collected stays until the end. Searching it for garbage again and again
# took 40% of the CPU time of a collection.
gc.disable()

# A shell that runs this in the background has its children ignore Ctrl-C, and theirs: some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _check_hints() -> None:
    """Fail where the hint of an error does not begin with a program: a hint is a command to paste."""
    init = SpecopsError.__init__

    def checked(self: SpecopsError, message: str, hint: str | None = None) -> None:
        assert hint is None or hint.split()[:1] in [[name] for name in PROGRAMS], f"not a command: {hint}"
        init(self, message, hint)

    SpecopsError.__init__ = checked  # type: ignore[method-assign]


_check_hints()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slowest-files", type=int, default=0, metavar="N", help="print the N files that took the most CPU"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SuiteReport(config.getoption("--slowest-files")), "suite_report")


WAITING = ("serve", "real", "load", "faults", "llamacpp")
"""Folders whose tests wait for servers more than they compute, those with the longest files first."""

LONGEST = (
    "test_sampled_heads.py",
    "test_canary_faults.py",
    "test_edge_sampling.py",
    "test_monitor_settings.py",
    "test_sampled_mixtures.py",
    "test_first_hour.py",
    "test_sampled_output.py",
    "test_guard_batches.py",
    "test_run_pools.py",
    "test_canary_cli.py",
    "test_doctor_fixes.py",
    "test_run_again.py",
    "test_faults.py",
    "test_sweep.py",
    "test_sweep_ray.py",
    "test_ab_command.py",
)
"""Files that begin first, from the longest on, since one worker takes a whole file: the last of them left one
core without work for minutes."""


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` does not ask for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_the_rest_slow(items)
    _mix_waiting_and_computing(items)


def _mark_the_rest_slow(items: list[pytest.Item]) -> None:
    """Of a test marked `quick(n)`, all cases but n, which are spread evenly over them."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick"):
            cases.setdefault((item.path, item.nodeid.partition("[")[0]), []).append(item)
    for of_one_test in cases.values():
        count = of_one_test[0].get_closest_marker("quick").args[0]
        quick = {len(of_one_test) * index // count for index in range(count)}
        for number, item in enumerate(of_one_test):
            if number not in quick:
                item.add_marker("slow")


def _mix_waiting_and_computing(items: list[pytest.Item]) -> None:
    """After the longest files, files that wait come between files that compute, so that two at a time seldom
    do the same. pytest-xdist hands files out in this order, by its option in pyproject.toml."""
    files = dict.fromkeys(item.path for item in items)
    waiting = [file for folder in WAITING for file in files if file.parent.name == folder]
    computing = [file for file in files if file.parent.name not in WAITING]
    mixed = {file: index / len(some) for some in (waiting, computing) for index, file in enumerate(some)}
    order = {
        file: (LONGEST.index(file.name) if file.name in LONGEST else len(LONGEST), mixed[file])
        for file in files
    }
    items.sort(key=lambda item: order[item.path])


PRELOADING = Path(__file__).parent / "preloading"


@pytest.fixture(scope="session")
def forked_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of the embedded engine that start from here on are forked from a process that has its imports,
    also those that specops starts (see preloading/sitecustomize.py)."""
    pytest.importorskip("torch", reason="needs the engine extra")
    log = tmp_path_factory.mktemp("fork-server") / "log"
    threads = {"OMP_NUM_THREADS": "1"}
    with (
        fork_server(Path(sys.executable), PRELOADING / "imports.py", threads, log) as variables,
        pytest.MonkeyPatch.context() as patch,
    ):
        for path in variables.values():
            patch.setenv("EMBEDDED_FORK_SERVER", path)  # removed by tests of what a start itself takes
            patch.setenv("PYTHONPATH", str(PRELOADING), prepend=os.pathsep)
        yield


CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CORPUS = ["the server measures what it serves, and the draft proposes what the target verifies"] * 4


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(target, draft): random Llama models with one byte-level BPE tokenizer, about 300 tokens, seeded."""
    torch = pytest.importorskip("torch", reason="needs the engine extra")
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    folders = []
    for name, layers, seed in (("target", 2, 0), ("draft", 1, 1)):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
        )
        folder = tmp_path_factory.mktemp("pair") / name
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(folder)
    return folders[0], folders[1]


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<|end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast
