"""``vllm bench serve`` and ``realexec observe`` send one file of requests, each pinned to one core."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.worlds.processes import ROOT, default_signals
from tests.worlds.vllm_servers import MODEL, PYTHON, VllmServer

BLOCK_TOKENS = 512  # of a hash id in the file: traces/importers/mooncake.py


def write_tokenizer(folder: Path, vocab: int) -> None:
    """A word for each id: the load generator draws its prompts from a tokenizer's vocabulary."""
    from tokenizers import Tokenizer, models

    words = {f"t{one}": one for one in range(vocab)}
    Tokenizer(models.WordLevel(words, unk_token="t0")).save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def bench(server: VllmServer, model: Path, workload: Path, out: Path, core: int) -> None:
    """Times as they stand in the file; prompts are random tokens, as long as in the file.

    Token ids are asked for, as ``observe`` does, so that the server has the same work.
    """
    count = _requests(workload)
    words = [
        os.environ[PYTHON], "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "vllm",
        "--base-url", server.url, "--endpoint", "/v1/completions", "--model", MODEL,
        "--tokenizer", str(model),
        "--dataset-name", "timed_trace", "--dataset-path", str(workload), "--num-prompts", str(count),
        "--timed-trace-sec-multiplier", "0.001", "--timed-trace-chunk-hash-size", str(BLOCK_TOKENS),
        "--temperature", "0", "--extra-body", '{"return_token_ids": true}', "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", str(out.parent), "--result-filename", out.name,
    ]  # fmt: skip
    _run(words, core, {"PYTHONHASHSEED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})


def observe(server: VllmServer, workload: Path, out: Path, core: int) -> None:
    """As a user would: in a process of its own."""
    count = _requests(workload)
    words = [
        sys.executable, "-m", "servetwin.cli.realexec", "observe", server.url, "model=tiny_llama",
        "trace=file", f"trace.path={workload}", f"trace.limit={count}", "trace.tokens_scale=1",
        "http.check_tokens=0", f"out={out}",
    ]  # fmt: skip
    _run(words, core, {})


def _requests(workload: Path) -> int:
    return len(workload.read_text(encoding="utf-8").splitlines())


def _run(words: Sequence[str], core: int, told: dict[str, str]) -> None:
    done = subprocess.run(
        ["taskset", "-c", str(core), *words],
        cwd=ROOT, env={**os.environ, **told}, text=True, capture_output=True, preexec_fn=default_signals,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
