"""What the fork server for vLLM runs (tests/forked.py): the imports of a server's three processes.

vLLM itself forks two of the three where it may, and starts new interpreters on CPUs, which import everything
again. `VLLM_WORKER_MULTIPROC_METHOD` cannot change this: vLLM overwrites that variable on CPUs. A value in its
module of variables comes before the variable.
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
import_module("vllm.envs").VLLM_WORKER_MULTIPROC_METHOD = "fork"
