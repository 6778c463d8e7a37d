import vllm.entrypoints.launchers.api_server.entry
import vllm.entrypoints.launchers.cli_args
import vllm.v1.engine.async_llm
import vllm.v1.engine.core
import vllm.v1.executor.multiproc_executor
import vllm.v1.worker.cpu_worker
import vllm.v1.worker.worker_base
import vllm.model_executor.models.llama
import uvloop
import vllm.envs

vllm.envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
