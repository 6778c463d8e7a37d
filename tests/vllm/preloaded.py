"""What the fork server for vLLM runs (tests/forked.py): the imports of a server's three processes.

The API server starts the engine, and the engine its worker. By default vLLM forks both. On CPUs it starts new
interpreters, which import everything again: it overwrites the variable VLLM_WORKER_MULTIPROC_METHOD there.
A value set in its module of variables has priority over the variable.
"""

from importlib import import_module

for name in (
    "uvloop",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.worker_base",
    "vllm.model_executor.models.llama",
):
    import_module(name)
import_module("vllm.envs").VLLM_WORKER_MULTIPROC_METHOD = "fork"  # type: ignore[attr-defined]
