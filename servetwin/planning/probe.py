"""One run of a plan: its numbers at an end of the step times' error, or as modelled."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, Literal

from hwmodels.errors import HardwareError
from servetwin.config.config import NO_SERIES
from servetwin.planning.layout import hardware_of_cluster
from servetwin.planning.objective import Objective
from servetwin.sweeps.outcome import PointOutcome, numbers_in
from serving.vocabulary.errors import PolicyError, UserError
from traces.errors import TraceError

PROMPT_RATE: Final = "throughput.prompt_tokens_per_s"
End = Literal["low", "mid", "high"]


@lru_cache(maxsize=4096)
def probe(words: tuple[str, ...], end: End, objective: Objective | None = None) -> PointOutcome:
    """Run ``words`` (of a single run, without out=). A user error is also returned as an outcome.

    ``objective``: the run stops once it is missed for certain; None: it goes on to the last request.
    """
    from time import process_time

    from servetwin.planning.stop_rule import ObjectiveRule, may_stop
    from servetwin.run.ends import prepared_at_end
    from servetwin.run.simulate import execute

    began_s = process_time()
    try:
        prepared = prepared_for(words)
        if end != "mid":
            prepared = prepared_at_end(prepared, end)
        if objective is not None and may_stop(prepared):
            prepared = replace(prepared, stops=partial(ObjectiveRule, objective))
        simulated = execute(prepared)
    except PolicyError as error:
        return PointOutcome({}, str(error))
    except (UserError, TraceError, HardwareError) as error:
        return PointOutcome({}, in_words_of_a_plan(str(error)))
    spent_s = process_time() - began_s
    return PointOutcome(
        dict(numbers_in(simulated.summary)) | _prompt_rate(simulated),
        cpu_s=spent_s,
        stopped=simulated.stopped,
        step_time=_kind_of(prepared),
    )


def _prompt_rate(simulated: Any) -> dict[str, float]:
    """Return the rate of the finished requests' prompt tokens, beside that of their output tokens."""
    output = float(simulated.columns["output_tokens"].sum()) if "output_tokens" in simulated.columns else 0.0
    if not output or "prompt_tokens" not in simulated.columns:
        return {}
    rate = simulated.summary["throughput"]["output_tokens_per_s"]
    return {PROMPT_RATE: rate * float(simulated.columns["prompt_tokens"].sum()) / output}


def _kind_of(prepared: Any) -> str:
    """Return the kind of the step times' source, that of the library as engine.step_time names it."""
    if prepared.config.engine.step_time_tables is not None:
        return "aiconfigurator"
    return str(prepared.hardware.step.source).partition(":")[0]


def in_words_of_a_plan(text: str) -> str:
    """Rewrite a run's error with a plan's words: gpu=blitz_a for cluster=blitz_a_2x8."""
    return re.sub(r"\bcluster=([\w./-]+)", lambda prepared: f"gpu={hardware_of_cluster(prepared[1])}", text)


@lru_cache(maxsize=2)
def prepared_for(words: tuple[str, ...]) -> Any:
    """Return what the ends of one run share: configuration, hardware, workload."""
    from servetwin.config.compose.compose import load_config
    from servetwin.run.simulate import prepare

    config = load_config([*words, "out=none"], "simulate")
    return prepare(replace(config, series=NO_SERIES))
