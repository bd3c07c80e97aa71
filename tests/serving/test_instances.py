"""Seats and instances: who has which GPU, and what is parked."""

import pytest

from serving.elastic.instances import Instances
from serving.vocabulary.replica import Role
from tests.worlds.elastic_world import Setting
from tests.worlds.refusals import refuses


def instances(size: int = 1) -> Instances:
    setting = Setting(models={"m": size})
    return Instances(setting.cluster(), {"m": setting.prototype("m")}, [])


def numbers(found: Instances, model: str) -> list[int]:
    return [number for number, _ in found.free_slots(model).every()]


def gpus(found: Instances, model: str) -> list[tuple[int, ...]]:
    return [found.replica(number).gpus for number in numbers(found, model)]


def in_state(state: str) -> Instances:
    found = instances()
    found.free_slots("m")
    if state != "none":
        found.place(0, "prefill", "loading" if state == "loading" else "serving")
    if state == "draining":
        found.drain(0)
    return found


def test_a_refusal_names_the_replica_and_its_state() -> None:
    refuses(AssertionError, "replica 0 is loading, not serving", in_state("loading").drain, 0)
    refuses(AssertionError, "GPU 0 belongs to replica 0", in_state("serving").place, 0, "decode", "loading")


def test_a_turn_moves_the_supply_from_role_to_role() -> None:
    found = in_state("serving")
    found.switch_role(0, "decode")
    assert (found.supply("m", "prefill"), found.supply("m", "decode")) == (0, 1)
    refuses(AssertionError, "cannot change its role", in_state("loading").switch_role, 0, "decode")


def test_a_seat_is_within_a_host_and_keeps_its_number() -> None:
    found = instances(size=2)
    assert found.free_slots("m").every() == [(0, 0), (1, 2)]
    found.place(1, "decode", "serving")
    assert numbers(found, "m") == [0]
    found.free(1)
    assert numbers(found, "m") == [0, 1]


def test_models_share_gpus_and_not_numbers() -> None:
    setting = Setting(models={"a": 1, "b": 2})
    prototypes = {name: setting.prototype(name) for name in "ab"}
    found = Instances(setting.cluster(), prototypes, [])
    assert numbers(found, "a") == [0, 1, 2, 3]
    assert gpus(found, "b") == [(0, 1), (2, 3)]
    found.place(1, "both", "serving")
    assert gpus(found, "b") == [(2, 3)]
    assert (found.spare("a", 0), found.spare("b", 0)) == (3, 1)


def test_what_is_parked_can_be_revived_until_its_time_or_until_others_come() -> None:
    found = in_state("draining")
    found.free(0, parked_until_ns=100)
    assert (found.parked("m", 99), found.spare("m", 99)) == ((0,), 3)
    assert (found.parked("m", 100), found.spare("m", 100)) == ((), 4)
    other = in_state("draining")
    other.free(0, parked_until_ns=100)
    other.place(0, "decode", "loading")
    assert other.parked("m", 1) == ()
    third = in_state("draining")
    third.free(0, parked_until_ns=100)
    third.unpark(0)
    assert (third.parked("m", 1), third.spare("m", 1)) == ((), 4)


@pytest.mark.parametrize("state", ["loading", "serving", "draining"])
def test_gpus_of_a_lost_replica_are_never_free_again(state: str) -> None:
    found = in_state(state)
    found.lost(0)
    assert gpus(found, "m") == [(1,), (2,), (3,)]
    assert found.spare("m", 0) == 3


def test_a_lost_host_has_no_seats_and_nothing_parked() -> None:
    found = in_state("draining")
    found.free(0, parked_until_ns=100)
    found.place(1, "decode", "serving")
    refuses(AssertionError, "still has the replicas", found.lost_host, 0)
    found.lost(1)
    found.lost_host(0)
    assert gpus(found, "m") == [(2,), (3,)]
    assert (found.parked("m", 1), found.spare("m", 1)) == ((), 2)


def test_instances_by_role_in_order() -> None:
    found = instances()
    found.free_slots("m")
    roles: dict[int, Role] = {2: "decode", 0: "prefill", 1: "decode"}
    for number, role in roles.items():
        found.place(number, role, "serving")
    assert [one.replica.id for one in found.of("m", "decode")] == [1, 2]
    assert [one.replica.id for one in found.of("m")] == [0, 1, 2]
