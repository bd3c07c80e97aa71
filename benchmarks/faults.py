"""How requests end after each kind of fault, system by system (see docs/contributing/lab/FAULTS.md).

python -m benchmarks.faults [SYSTEM ...]    all systems if left out; prints the rows of the page's table
"""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.command import among, command
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import execute, prepare

SYSTEMS: Final = {
    "vllm": "system=vllm",
    "least_kv": "system=vllm system/dispatch=least_kv",
    "distserve": "system=distserve_full",
    "serverlessllm": "system=serverlessllm",
    "blitz_multicast": "system=blitz_multicast",
    "blitzscale": "system=blitzscale",
}
AT_S: Final = 15
# NICs by host: every cable of host 0, one after the other, so that nothing connects it any more.
LOSSES: Final = {
    "none": "",
    "replica": f"{AT_S}:replica:0",
    "host": f"{AT_S}:host:0",
    "link": f"{AT_S}:link:host0/nic0",
    "all links of a host": "+".join(f"{AT_S}:link:host0/nic{nic}" for nic in range(8)),
    "ssd": f"{AT_S}:ssd:0",
}
RUN: Final = "trace=azure_code_like trace.rate_scale=4 trace.limit=800 cluster=blitz_b out=unused"


def main(words: list[str]) -> None:
    """Print one row per system and kind of loss."""
    among(words, SYSTEMS, "system")
    print("| system | lost | arrived | finished | failed | rejected | as many served again | why |")
    print("|---|---|---|---|---|---|---|---|")
    for system in words or SYSTEMS:
        for loss, events in LOSSES.items():
            faults = ["faults=listed", f"faults.events={events}"] if events else []
            run = execute(prepare(load_config([*SYSTEMS[system].split(), *RUN.split(), *faults], "simulate")))
            print(row(system, loss, run.summary), flush=True)


def row(system: str, loss: str, summary: Mapping[str, Any]) -> str:
    """A line of the table."""
    requests = summary["requests"]
    assert requests["arrived"] == sum(requests[outcome] for outcome in ("finished", "rejected", "failed"))
    counts = " | ".join(str(requests[outcome]) for outcome in ("arrived", "finished", "failed", "rejected"))
    back = [fault["recovered_s"] for fault in summary.get("faults", ()) if fault["replicas"]]
    known = [seconds for seconds in back if seconds is not None]
    again = f"{max(known):.2f} s" if known else "-"
    reasons = {**summary["failed_reasons"], **summary["rejected_reasons"]}
    why = "; ".join(f"{times} {reason}" for reason, times in sorted(reasons.items()))
    return f"| {system} | {loss} | {counts} | {again} | {why} |"


if __name__ == "__main__":
    command("benchmarks.faults", __doc__, main)
