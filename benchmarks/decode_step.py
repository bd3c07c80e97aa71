"""Time of a decode step: one attention call for all rows of a batch, beside one call for each row.

    python -m benchmarks.decode_step [turns]

Both kinds decode the same requests in turns, each with its own KV, and have to give the same tokens. A line
has the CPU time of the median step of each kind, and the median over the turns of their ratio.
"""

import random
import sys
import time
from statistics import median
from typing import Any, Final

BATCHES: Final = (1, 4, 16)
CONTEXTS: Final = (64, 512)
STEPS: Final = 16
WARM_UP: Final = 3
SEED: Final = 5


class CallPerRow:
    """Plans one attention call for each row, as outside fp32."""

    def plan(self, batch: Any) -> Any:
        """All rows of the batch attend alone."""
        from realexec.model.batched_attention import Plan

        return Plan([], list(range(len(batch))))


def requests(runner: Any, batch: int, context: int, steps: int) -> list[Any]:
    """Prefilled requests, with contexts of ``context`` tokens and up to 15 fewer: (token, known, KV)."""
    draw, prefilled = random.Random(SEED), []
    for number in range(batch):
        known = context - number % 16
        prompt = [draw.randrange(runner.spec.config.vocab_size) for _ in range(known)]
        kv = runner.new_kv(known + steps)
        runner.prefill(prompt, 0, known, kv)
        prefilled.append((prompt[-1], known, kv))
    return prefilled


def decode(runner: Any, prefilled: list[Any], first: int, steps: int) -> tuple[list[Any], float]:
    """Run ``steps`` decode steps; returns the newest tokens and the CPU seconds of a step."""
    from realexec.model.model_runner import DecodeRow

    began_s = time.thread_time()
    for step in range(first, first + steps):
        tokens = runner.decode([DecodeRow(token, known + step, kv) for token, known, kv in prefilled])
        prefilled = [(token, known, kv) for token, (_, known, kv) in zip(tokens, prefilled)]
    return prefilled, (time.thread_time() - began_s) / steps


def measure(runner: Any, batch: int, context: int, turns: int) -> tuple[list[float], list[float]]:
    """CPU seconds of a step of each kind in every turn: (one call for each row, one call for all)."""
    together, single = runner.attention, CallPerRow()
    steps = WARM_UP + turns * STEPS
    kinds = [
        (single, requests(runner, batch, context, steps)),
        (together, requests(runner, batch, context, steps)),
    ]
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(-1, turns):
        first, number = (0, WARM_UP) if turn < 0 else (WARM_UP + turn * STEPS, STEPS)
        for which in (0, 1) if turn % 2 else (1, 0):
            runner.attention = kinds[which][0]
            prefilled, step_s = decode(runner, kinds[which][1], first, number)
            kinds[which] = kinds[which][0], prefilled
            if turn >= 0:
                times[which].append(step_s)
        if [row[0] for row in kinds[0][1]] != [row[0] for row in kinds[1][1]]:
            raise SystemExit(f"the tokens differ at batch {batch} and context {context}")
    runner.attention = together
    for _, prefilled in kinds:
        for _, _, kv in prefilled:
            kv.close()
    return times


def main() -> None:
    """Print one line for each batch and context."""
    import torch

    from realexec.model.model_runner import ModelRunner
    from servetwin.run.real_run import transformers_config

    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(
        f"tiny_llama, {turns} turns of {STEPS} steps of each kind; ms of CPU time of the median turn's step"
    )
    with torch.inference_mode():
        for batch in BATCHES:
            runner = ModelRunner(transformers_config("tiny_llama"), SEED, batch)
            for context in CONTEXTS:
                rows, together = measure(runner, batch, context, turns)
                ratio = median(after / before for before, after in zip(rows, together))
                print(
                    f"batch {batch:2}  context {context:3}  a call for each row {median(rows) * 1e3:6.2f}   "
                    f"one call {median(together) * 1e3:6.2f}   ratio {ratio:.2f}"
                )


if __name__ == "__main__":
    main()
