"""A run as its engine sees it, for files whose times were taken inside an engine and not by clients."""

from dataclasses import replace
from typing import Any, Final

from servetwin.compare.own_result import Result

# Vidur and LLMServingSim simulate engines; LLMServingSim's bench keeps times of vLLM's request states.
FORMATS: Final = ("vidur", "llmservingsim", "llmservingsim_bench")
ENGINE: Final = "ttft_engine_ms"
REMARK: Final = "the file's times were taken inside an engine: the run's are too, without its front end"


def at_the_engine(result: Result) -> Result:
    """Return the run with the engine's TTFT and E2E instead of its clients'; itself without a front end."""
    columns = dict(result.columns)
    if ENGINE not in columns:
        return result
    around_ms = columns["ttft_ms"] - columns[ENGINE]
    columns |= {"ttft_ms": columns[ENGINE], "e2e_ms": columns["e2e_ms"] - around_ms}
    columns["arrival_ns"] = columns["entered_ns"]
    return replace(result, columns=columns, summary=_without_clients(result.summary))


def _without_clients(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with the engine's TTFT; its clients' E2E has no range."""
    ends = summary.get("range") or {}
    kept = {name: pair for name, pair in ends.items() if not name.startswith(("ttft_ms.", "e2e_ms."))}
    own = {name.replace(ENGINE, "ttft_ms"): pair for name, pair in ends.items() if name.startswith(ENGINE)}
    return summary | {"ttft_ms": summary[ENGINE], **({"range": kept | own} if ends else {})}
