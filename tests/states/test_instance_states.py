"""Every cell of the table of instances is played; who has which GPU, and how many a role has."""

from collections.abc import Callable

import pytest

from serving.elastic.instances import Instances
from tests.states.instance_states import CELLS
from tests.worlds.elastic_world import Setting

PLAYS: dict[str, Callable[[Instances], object]] = {
    "place": lambda one: one.place(0, "prefill", "loading"),
    "loaded": lambda one: one.loaded(0),
    "drain": lambda one: one.drain(0),
    "cancel drain": lambda one: one.cancel_drain(0),
    "switch role": lambda one: one.switch_role(0, "decode"),
    "terminate": lambda one: one.terminate(0),
    "free": lambda one: one.free(0),
    "lost": lambda one: one.lost(0),
}


def in_state(state: str) -> Instances:
    """Replica 0 of four that there are GPUs for."""
    setting = Setting()
    found = Instances(setting.cluster(), {"m": setting.prototype("m")}, [])
    found.free_slots("m")
    if state != "none":
        found.place(0, "prefill", "loading" if state == "loading" else "serving")
    if state == "draining":
        found.drain(0)
    if state == "terminating":
        found.terminate(0)
    return found


def outcome(found: Instances) -> str:
    free = 0 in [number for number, _ in found.free_slots("m").every()]
    if 0 not in found.live:
        return f"none, its GPUs are {'free' if free else 'lost'}"
    assert not free
    instance = found.live[0]
    return instance.state + (" in another role" if instance.role == "decode" else "")


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    found, expected = in_state(state), CELLS[state, event]
    before = found.changes["m"]
    if expected == "refused":
        with pytest.raises((AssertionError, KeyError)):
            PLAYS[event](found)
        return
    PLAYS[event](found)
    assert outcome(found) == expected
    assert found.changes["m"] == before + 1
    supply = {role: found.supply("m", role) for role in ("prefill", "decode")}
    role = "decode" if "another" in expected else "prefill"
    counts = expected.startswith(("loading", "serving"))
    assert supply == {"prefill": 0, "decode": 0} | {role: int(counts)}
