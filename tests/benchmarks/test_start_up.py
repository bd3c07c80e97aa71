"""The start-up sweep: its set-ups are runs."""

from benchmarks.start_up import KINDS, SETS, SYSTEMS, WORDS
from servetwin.config.compose.compose import load_config
from serving.vocabulary.errors import UserError


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
