"""Whose out-link a planner is told is busy: that of an instance while KV leaves it, and no longer."""

from typing import Any

from serving.protocols.provisioning import Provision, Provisioned
from serving.vocabulary.actions import Send
from tests.worlds.elastic_world import MS, Setting, Told
from tests.worlds.told_systems import wait


class Shown:
    """A provisioner that remembers what it was shown, and loads nothing."""

    def __init__(self, provisioner: Any) -> None:
        self._provisioner = provisioner
        self.last: Provision | None = None

    def provision(self, wanted: Provision) -> Provisioned:
        self.last = wanted
        return self._provisioner.provision(wanted)  # type: ignore[no-any-return]

    def busy(self) -> dict[int, bool]:
        assert self.last is not None
        return {source.endpoint[1]: source.out_busy for source in self.last.holders}


def world() -> tuple[Told, Shown]:
    """One prefill and one decode instance; the scaler wants more prefill when 60 prompt tokens wait."""
    told = Told(
        Setting(
            start={"prefill": 1, "decode": 1},
            bounds={"prefill": (1, 3), "decode": (1, 1)},
            prefill_tokens_per_s=60.0,
            provision="multicast",
            max_num_batched_tokens=8,
        )
    )
    shown = told.deployment._provisioner = Shown(told.deployment._provisioner)
    return told, shown


def crowd(told: Told, start: int) -> None:
    """Enough prompts for another prefill instance, by the next look."""
    for number in range(start, start + 12):
        told.arrive(number, 6)
    wait(told, 1)


def test_a_prefill_instance_from_which_nothing_leaves_may_send_parameters() -> None:
    told, shown = world()
    crowd(told, 0)
    assert shown.busy() == {0: False, 1: False}


def test_a_prefill_instance_is_busy_while_kv_leaves_it() -> None:
    told, shown = world()
    told.arrive(0, 6)
    (send,) = [one for one in told.ran(0) if isinstance(one, Send)]
    assert told.controller.services["m"].kv_senders() == {0}
    crowd(told, 1)
    assert shown.busy() == {0: True, 1: False}
    told.sent(send.transfer)
    assert told.controller.services["m"].kv_senders() == set()
    assert told.now_ns >= 100 * MS
