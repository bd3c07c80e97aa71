"""One run of a plan: its numbers at an end of the step times' error, or as modelled."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from hwmodels.errors import HardwareError
from servetwin.config.config import NO_SERIES
from servetwin.planning.layout import hardware_of_cluster
from servetwin.sweeps.outcome import PointOutcome, numbers_in
from serving.vocabulary.errors import PolicyError, UserError
from traces.errors import TraceError

End = Literal["low", "mid", "high"]


@lru_cache(maxsize=4096)
def probe(words: tuple[str, ...], end: End) -> PointOutcome:
    """Run ``words`` (of a single run, without out=). A user error is also returned as an outcome."""
    from time import process_time

    from servetwin.run.ends import prepared_at_end
    from servetwin.run.simulate import execute

    began_s = process_time()
    try:
        prepared = prepared_for(words)
        if end != "mid":
            prepared = prepared_at_end(prepared, end)
        summary = execute(prepared).summary
    except PolicyError as error:
        return PointOutcome({}, str(error))
    except (UserError, TraceError, HardwareError) as error:
        return PointOutcome({}, in_words_of_a_plan(str(error)))
    return PointOutcome(dict(numbers_in(summary)), cpu_s=process_time() - began_s)


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
