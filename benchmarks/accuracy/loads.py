"""The loads of measured runs as trace files: inference-perf's shared prefixes, and clients that wait."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.accuracy.measured import STAGES, MeasuredRun

# inference-perf's shared prefixes as these runs had them: 100 prompts in 10 groups, used in turn.
PROMPTS: Final = 100
GROUPS: Final = 10
BLOCK_TOKENS: Final = 16


def trace_words(run: MeasuredRun, folder: Path) -> tuple[str, ...]:
    """Write the run's requests below ``folder`` and return the words that play them."""
    path = folder / f"{run.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = _stage(run) if run.source == STAGES else _closed_loop(run)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    words = ("trace=file", f"trace.path={path}", "trace.format=mooncake", "trace.time_unit=ms")
    if run.source == STAGES:
        return (*words, f"trace.block_tokens={BLOCK_TOKENS}", "trace.partial_prefix=true")
    return (*words, f"trace.clients={run.load['concurrency']:g}", "trace.client_start_s=0")


def _stage(run: MeasuredRun) -> Iterator[dict[str, object]]:
    """Exponential gaps, scaled so that all requests fill the stage."""
    load = run.load
    count, rng = round(load["rate_per_s"] * load["duration_s"]), random.Random(run.name)
    gaps = [rng.expovariate(1.0) for _ in range(count)]
    scale, at_s = load["duration_s"] / sum(gaps), 0.0
    common, blocks = (
        int(load["system_prompt_tokens"]) // BLOCK_TOKENS,
        int(load["prompt_tokens"]) // BLOCK_TOKENS,
    )
    for request, gap in enumerate(gaps):
        prompt = request % PROMPTS
        first = [prompt % GROUPS * blocks + block for block in range(common)]
        own = [(GROUPS + prompt) * blocks + block for block in range(common, blocks)]
        yield _line(run, at_s * 1e3) | {"hash_ids": first + own}
        at_s += gap * scale


def _closed_loop(run: MeasuredRun) -> Iterator[dict[str, object]]:
    """No common contents; each client sends when its last answer is complete."""
    for request in range(int(run.load["requests"])):
        yield _line(run, float(request))


def _line(run: MeasuredRun, at_ms: float) -> dict[str, object]:
    load = run.load
    return {
        "timestamp": at_ms,
        "input_length": int(load["prompt_tokens"]),
        "output_length": int(load["output_tokens"]),
    }
