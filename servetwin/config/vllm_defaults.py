"""Default sequences and tokens of a vLLM step, by GPU and usage.

The rule of vLLM 0.19.0, ``EngineArgs.get_batch_defaults`` (vllm/engine/arg_utils.py), for GPUs.
"""

from typing import Final

from hwmodels.gpus.gpu import Gpu

# vLLM's UsageContext: ``vllm serve``, or the ``LLM`` class of a script, which has all its requests at once.
USAGE_CONTEXTS: Final = ("openai_api_server", "llm_class")
_LARGE_MEMORY_BYTES: Final = 70 * 2**30
_MAX_NUM_SEQS: Final = {True: 1024, False: 256}  # by whether the GPU is large
_MAX_NUM_BATCHED_TOKENS: Final = {
    True: {"openai_api_server": 8192, "llm_class": 16384},
    False: {"openai_api_server": 2048, "llm_class": 8192},
}


def is_large(gpu: Gpu) -> bool:
    """Return whether it has 70 GiB and is no A100, which large batches slow (vLLM pull request 17885)."""
    return gpu.memory_bytes >= _LARGE_MEMORY_BYTES and "a100" not in gpu.name


def batch_defaults(gpu: Gpu, usage_context: str) -> dict[str, int]:
    """Return ``max_num_seqs`` and ``max_num_batched_tokens`` of a vLLM that sets neither."""
    large = is_large(gpu)
    return {
        "max_num_seqs": _MAX_NUM_SEQS[large],
        "max_num_batched_tokens": _MAX_NUM_BATCHED_TOKENS[large][usage_context],
    }
