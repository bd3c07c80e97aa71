"""CPU time of the client by which most published runs were measured: ``vllm bench serve``."""

import os
import resource
import subprocess
from collections.abc import Mapping
from typing import Final

from benchmarks.front_end.client import Server

# requests, output tokens: differences of two runs leave out how it starts
RUNS: Final = ((64, 1), (448, 1), (64, 129))


def client_costs(python: str, server: Server, model: str) -> Mapping[str, float]:
    """CPU seconds per request, its prompt's making included, and per output token."""
    few, many, long = (_cpu_s(python, server, model, *one) for one in RUNS)
    return {
        "client_request_s": (many - few) / (RUNS[1][0] - RUNS[0][0]),
        "client_token_s": (long - few) / (RUNS[2][0] * (RUNS[2][1] - RUNS[0][1])),
    }


def _cpu_s(python: str, server: Server, model: str, requests: int, output_tokens: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = {
        "--backend": "vllm",
        "--base-url": f"http://{server.host}:{server.port}",
        "--model": server.model,
        "--tokenizer": model,
        "--dataset-name": "random",
        "--random-input-len": "100",
        "--random-output-len": str(output_tokens),
        "--num-prompts": str(requests),
        "--max-concurrency": "64",
        "--ignore-eos": None,
    }
    subprocess.run(
        [python, "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
        + [part for pair in words.items() for part in pair if part is not None],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
