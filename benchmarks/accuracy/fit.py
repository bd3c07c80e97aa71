"""What an engine adds to its steps and around them, fitted to the measured runs; and without each model.

The terms of hwmodels/catalogue/engine_terms.yaml. Steps: simulations without overhead and with ``STEP_S``
give each run's TPOT as a line in the overhead. Around them: TTFT at the client less that of the engine, as
``base + running_s x decoding requests + prompt_token_s x prompt tokens``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.measured import STAGES, MeasuredRun
from benchmarks.accuracy.runs import Evaluation
from hwmodels.step_times.engine_terms import engine_terms
from hwmodels.step_times.fit import non_negative
from servetwin.results.ranges import value_of

Floats = NDArray[np.float64]
STEP_S: Final = 2e-4
# Without a range, and without the constants that are to be fitted.
BARE: Final = ("uncertainty=off", "engine.overhead.per_sequence_s=0", "engine.front_end.way_in_s=0",
               "engine.front_end.way_out_s=0", "engine.front_end.running_s=0")  # fmt: skip
# Beyond this many clients the sampler's time per sequence shows.
MOST_CLIENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Terms:
    """``step_s``: per step. ``base_s``: way in and out. ``running_s``: per request that decodes beside it."""

    step_s: float
    base_s: float
    running_s: float

    def words(self) -> tuple[str, ...]:
        """The same as words of a run."""
        front_end = engine_terms("vllm", "0.15")["front_end"]
        way_out_s = self.base_s - front_end["way_in_s"] - front_end["request_s"]
        overhead = engine_terms("vllm", "0.15")["overhead"]
        errors = [f"engine.overhead.{name}={overhead[name]}" for name in ("error_s", "per_sequence_error_s")]
        return (
            *errors,
            f"engine.front_end.error_s={front_end['error_s']}",
            f"engine.overhead.step_s={self.step_s:.4g}",
            f"engine.front_end.way_out_s={way_out_s:.4g}",
            f"engine.front_end.running_s={self.running_s:.4g}",
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """One entry per run: what was measured, and the two simulations."""

    models: NDArray[np.str_]
    is_stage: NDArray[np.bool_]
    step_ms: Floats
    bare_ms: Floats
    slope: Floats
    ttft_ms: Floats
    engine_ms: Floats
    running: Floats
    prompt_tokens: Floats


def samples_of(runs: Sequence[MeasuredRun], evaluation: Evaluation) -> Samples:
    """Simulate the unsaturated runs twice."""
    used = [run for run in runs if not run.saturated and _judges_steps(run)]
    bare = [evaluation.simulated(run, (*BARE, "engine.overhead.step_s=0")).summary for run in used]
    slow = [evaluation.simulated(run, (*BARE, f"engine.overhead.step_s={STEP_S:g}")).summary for run in used]
    metric = ["tpot_ms.mean" if run.source == STAGES else "itl_ms.p50" for run in used]
    at = [value_of(summary, name) or 0.0 for summary, name in zip(bare, metric, strict=True)]
    slower = [value_of(summary, name) or 0.0 for summary, name in zip(slow, metric, strict=True)]
    stages = [run.source == STAGES for run in used]
    return Samples(
        models=np.array([run.model for run in used]),
        is_stage=np.array(stages),
        step_ms=np.array([run.measured[name] for run, name in zip(used, metric, strict=True)]),
        bare_ms=np.array(at),
        slope=(np.array(slower) - np.array(at)) / STEP_S,
        ttft_ms=np.array([run.measured.get("ttft_ms.mean", 0.0) for run in used]),
        engine_ms=np.array([value_of(summary, "ttft_engine_ms.mean") or 0.0 for summary in slow]),
        running=np.array([_decoding(run, summary) for run, summary in zip(used, slow, strict=True)]),
        prompt_tokens=np.array([run.load["prompt_tokens"] for run in used]),
    )


def fitted(samples: Samples, without: str = "") -> Terms:
    """The terms that fit the runs of all models but one."""
    known = samples.models != without
    return Terms(_step_s(samples, known), *_around_s(samples, known & samples.is_stage))


def _step_s(samples: Samples, known: NDArray[np.bool_]) -> float:
    """By relative error, each model weighing the same."""
    models = samples.models[known]
    weight = np.array([1.0 / np.sqrt((models == model).sum()) for model in models])
    slope = samples.slope[known] / samples.step_ms[known] * weight
    missing = (samples.step_ms - samples.bare_ms)[known] / samples.step_ms[known] * weight
    return max(0.0, float(slope @ missing / (slope @ slope)))


def _around_s(samples: Samples, known: NDArray[np.bool_]) -> tuple[float, float]:
    """(base, per decoding request) in seconds, by relative error of TTFT; neither is below 0."""
    token_ms = 1e3 * engine_terms("vllm", "0.15")["front_end"]["prompt_token_s"]
    ttft_ms = samples.ttft_ms[known]
    around_ms = ttft_ms - samples.engine_ms[known] - token_ms * samples.prompt_tokens[known]
    design = np.stack([np.ones(len(ttft_ms)), samples.running[known]], axis=1) / ttft_ms[:, None]
    base_ms, running_ms = non_negative(design, around_ms / ttft_ms)
    return float(base_ms) / 1e3, float(running_ms) / 1e3


def _decoding(run: MeasuredRun, summary: object) -> float:
    """Requests that decode at a time, by Little's law; of a stage only."""
    if run.source != STAGES:
        return 0.0
    tpot_ms = value_of(summary, "tpot_ms.mean") or 0.0  # type: ignore[arg-type]
    return run.load["rate_per_s"] * run.load["output_tokens"] * tpot_ms / 1e3


def _judges_steps(run: MeasuredRun) -> bool:
    return run.source == STAGES or run.load["concurrency"] <= MOST_CLIENTS
