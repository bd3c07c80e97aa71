"""The start-up sweep: what counts as time to capacity, and that its set-ups are runs."""

from benchmarks.start_up import KINDS, SETS, SYSTEMS, WORDS, times_to_capacity
from servetwin.config.compose.compose import load_config
from serving.vocabulary.errors import UserError


def event(t_s: float, act: str, replica: int | None = None) -> dict[str, object]:
    return {"t_s": t_s, "act": act, "replica": replica}


def test_capacity_is_there_when_all_that_was_wished_serve() -> None:
    events = [
        event(1.0, "load", 4),
        event(2.0, "load", 5),
        event(3.0, "ready", 4),
        event(3.5, "shortage"),
        event(6.0, "ready", 5),
        event(7.0, "released", 4),
        event(9.0, "load", 4),
        event(9.5, "released", 4),
    ]
    assert times_to_capacity(events) == [5.0, 0.5]


def test_only_systems_that_load_from_instances_have_no_hot_start() -> None:
    refused = set()
    for chosen, (_, words) in SETS.items():
        for system in SYSTEMS:
            for kind in KINDS:
                try:
                    load_config(
                        [f"system={system}", f"system.instances.start={kind}", *words, *WORDS], "simulate"
                    )
                except UserError:
                    refused.add((chosen, system, kind))
    expected = {(chosen, system, "hot") for chosen in SETS for system in ("blitz_network", "blitz_multicast")}
    assert refused == expected
