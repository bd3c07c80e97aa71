"""Figure 4: what other requests of a batch do to the time of a decode step."""

from typing import Final

from experiments.common.compare import pointed
from experiments.common.figure import Figure, Key, MeasuredPoint
from experiments.common.panels import panels_of
from experiments.common.rates import NOWHERE
from experiments.common.verdict import judged, times
from experiments.llumnix.judge import PointJudge
from experiments.llumnix.set_ups import ENGINE
from hwmodels.step_times.rows import FIXED_PER_S
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import prepare

MODELS: Final = {
    "LLaMA-7B, one A10": ("cluster=llumnix_1x1", "model=llama_7b"),
    "LLaMA-30B, four A10": ("cluster=llumnix_1x4", "model=llama_30b", "model.tp=4"),
}
_LENGTHS: Final = (64, 128, 256, 512, 1024)
KEY: Final[Key] = ("batch", "Figure 4")
# Inside an engine a step takes no messages of Ray's and no frontend, which are in engine=vllm_0_1_7's 0.65 ms
# per sequence: 0.05 of vllm_0_2_0 and 0.24 of the sampler (its sources) are left.
_STEP: Final = "engine.overhead.per_sequence_s=2.9e-4"
_WORDS: Final = ("engine=vllm_0_1_7", *ENGINE, _STEP, "system=vllm", "trace=poisson", "trace.requests=2")


def fig4(_: PointJudge) -> Figure:
    """Decode steps of batches of equal sequences, up to what KV memory holds."""
    numbers = tuple(step for panel, words in MODELS.items() for step in _steps(panel, words))
    rows = []
    for panel in MODELS:
        by_length = {
            system: [point.values[0] for point in numbers if (point.panel, point.system) == (panel, system)]
            for system in dict.fromkeys(point.system for point in numbers)
        }
        length, steps = max(by_length.items(), key=lambda item: item[1][-1] / item[1][0])
        ratio = steps[-1] / steps[0]
        why = f"{length}: {steps[0]:.1f} ms alone, {steps[-1]:.1f} ms in a full batch"
        claim = times(2.6, "up to 2.6 times")
        row = judged(f"{panel}: slowest over fastest step, one length", claim, ratio, f"{ratio:.2f}", why=why)
        rows.append(pointed(row, KEY))
    data = {
        "told": "ms of a decode step, by panel, length of a sequence and total tokens",
        "points": _as_points(numbers),
    }
    inputs = (
        "no requests are run: these are the step times that all runs here have, less what Ray's messages and "
        "the frontend take, which is no part of an engine's step",
    )
    return Figure(
        "fig4",
        "Figure 4: interference in a batch",
        tuple(rows),
        panels=panels_of(numbers, "tokens in the batch"),
        inputs=inputs,
        sweeps={KEY: data},
        numbers=numbers,
    )


def _steps(panel: str, words: tuple[str, ...]) -> list[MeasuredPoint]:
    """Batches of 1, 2, 4, ... sequences and the largest that fits."""
    prepared = prepare(load_config((*words, *_WORDS, NOWHERE), "simulate"))
    held = prepared.estimates.models[0].kv_tokens
    points = []
    for length in _LENGTHS:
        most = min(held // length, prepared.config.engine.max_num_seqs)
        sizes = [size for power in range(12) if (size := 1 << power) < most]
        for size in (*sizes, most):
            ms = prepared.hardware.rows.decode_cost(size, size * length) / FIXED_PER_S * 1e3
            points.append(
                MeasuredPoint(panel, "decode_step_ms", f"{length} tokens each", size * length, (ms,))
            )
    return points


def _as_points(numbers: tuple[MeasuredPoint, ...]) -> dict[str, dict[str, dict[str, float]]]:
    points: dict[str, dict[str, dict[str, float]]] = {}
    for point in numbers:
        points.setdefault(point.panel, {}).setdefault(point.system, {})[f"{point.x:g}"] = point.values[0]
    return points
