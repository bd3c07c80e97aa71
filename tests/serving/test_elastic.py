"""Instances that come and go: whole action lists from the first request to the last GPU given back."""

import json

import pytest

from serving.protocols.provisioning import Provision, Provisioned
from serving.vocabulary.actions import AllocateGpus, Assign, Load, ReleaseGpus, Wake
from serving.vocabulary.replica import Role
from serving.vocabulary.request import Request
from tests.worlds.drawn_elastic import ROWS, Drawn, on_links, simulate
from tests.worlds.elastic_world import MS, PROVISIONERS, Setting, Told
from tests.worlds.told_systems import BOTH, WHOLE, both, load, place, prompt, wait

NONE: dict[Role, int] = {"prefill": 0, "decode": 0}


def test_from_zero_a_request_waits_at_the_door_for_its_load() -> None:
    told = both()
    assert told.arrive(0) == [place(0), load(0, ("host", 0), 0), Wake(100 * MS, "")]
    assert told.arrive(1) == []
    assert told.states == {0: ("both", "loading")}
    assert told.loaded(0)[:2] == [Assign(0, 0, ""), prompt(0, 0)]
    assert told.states == {0: ("both", "serving")}


def test_to_zero_after_a_copy_has_come_back_to_host_memory() -> None:
    told = both()
    told.arrive(0), told.loaded(0), told.ran(0), told.ran(0, 0, steps=9)
    back = Load(1, "m", (("replica", 0),), (("host", 0),), (), False, False, "", layers=WHOLE.layers)
    assert wait(told, 5) == [back]
    assert told.states == {0: ("both", "draining")}
    assert wait(told, 2) == []
    assert told.loaded(1) == [ReleaseGpus(0, "")]
    assert told.states == {}
    assert told.arrive(1)[:2] == [place(0), load(2, ("host", 0), 0)]  # it keeps its number


def test_a_model_at_rest_asks_for_no_look_of_the_monitor() -> None:
    told = both()
    told.arrive(0), told.loaded(0), told.ran(0), told.ran(0, 0, steps=9)
    wait(told, 5), told.loaded(1)
    assert told.woke(told.now_ns + 100 * MS) == []


@pytest.mark.parametrize(("period", "answer"), [(3, place(0, warm=True)), (9, place(0))])
def test_parameters_stay_on_gpus_that_were_given_back_for_a_while(period: int, answer: AllocateGpus) -> None:
    """Given back at 500 ms and kept for 500 ms."""
    told = both(start=1, copies="ttl", park_ns=500 * MS)
    told.arrive(0), told.ran(0), told.ran(0, 0, steps=9)
    assert wait(told, 5) == [ReleaseGpus(0, "")]
    told.now_ns += period * 100 * MS
    first, second, *_ = told.arrive(1)
    assert first == answer
    assert second == (Assign(1, 0, "") if answer.warm else load(0, ("host", 0), 0))


def test_a_draining_instance_takes_requests_again_when_they_come() -> None:
    told = both(start=2, least=1, copies="ttl", max_num_seqs=2)
    told.arrive(0), told.arrive(1), told.ran(0), told.ran(1)
    assert wait(told, 3) == []
    told.ran(0, 0, steps=9)
    assert wait(told, 9) == [ReleaseGpus(0, "")]


def test_a_load_that_is_not_enough_at_once_grows_by_the_period() -> None:
    """Prompts of 16 at 20 tokens/s: 80 tokens want six instances at least to be 0.7 s behind."""
    told = both(start=1, least=1, most=8, prefill_tokens_per_s=20.0)
    for id in range(5):
        told.arrive(id, 16, 10)
    placed = [action.replica for action in wait(told, 1) if isinstance(action, AllocateGpus)]
    assert placed == [1, 2, 3]  # as many as there are GPUs
    (last,) = [event for event in told.deployment.log.events if event.act == "shortage"]
    assert last.replica == -1 and "find no free GPUs" in last.reason and last.obstacle == "no_gpu"


def test_a_model_that_is_short_takes_an_idle_instance_of_another() -> None:
    bounds: dict[Role, tuple[int, int]] = {"both": (0, 2)}
    setting = Setting({"a": 1, "b": 1}, 1, 2, {"both": 1}, bounds, copies="ttl", prefill_tokens_per_s=20.0)
    told = Told(setting)
    for id in range(3):
        told.arrive(id, 16, 10, "a")
    assert wait(told, 1) == [ReleaseGpus(1, "")]
    (taken,) = [event for event in told.deployment.log.events if event.act in ("drain", "released")][:1]
    assert (taken.model, taken.replica) == ("b", 1)
    seat = [one for one in wait(told, 1) if isinstance(one, AllocateGpus)]
    assert [(one.model, one.gpus) for one in seat] == [("a", (1,))]


class Nothing:
    """A provisioner that never finds a way."""

    def provision(self, wanted: Provision) -> Provisioned:
        return Provisioned((), False, "no way")


def test_where_gpus_are_free_and_nothing_leads_there_no_other_model_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told once while nothing changes; instances beyond the free GPUs lack no GPU either."""
    monkeypatch.setitem(PROVISIONERS, "nothing", Nothing)
    start: dict[Role, int] = {"prefill": 1, "decode": 1}
    bounds: dict[Role, tuple[int, int]] = {"prefill": (0, 9), "decode": (0, 9)}
    rules = {"prescale_from": 1, "prescale_by": 1}
    setting = Setting(
        {"a": 1, "b": 1}, 2, 3, start, bounds, provision="nothing", rules=rules, prefill_tokens_per_s=20.0
    )
    told = Told(setting)
    for id in range(3):
        told.arrive(id, 16, 10, "a")
    wait(told, 3)
    short = [event for event in told.deployment.log.events if event.model == "a"]
    assert [(one.act, one.role, one.obstacle) for one in short] == [
        ("shortage", "prefill", "no_path"),  # for two GPUs are free
        ("shortage", "prefill", "no_path"),
        ("shortage", "decode", "no_path"),
    ]
    assert "find no way from a copy of the parameters to free GPUs; " in short[0].reason


def test_a_split_model_wakes_both_its_roles_at_once() -> None:
    told = Told(Setting(start=NONE))
    actions = told.arrive(0)
    assert [(one.replica, one.role) for one in actions if isinstance(one, AllocateGpus)] == [
        (0, "prefill"), (1, "decode"),
    ]  # fmt: skip
    told.loaded(0), told.ran(0)
    assert told.controller.services["m"].migrating_tokens == 6  # it waits for a place to decode
    assert [type(one).__name__ for one in told.loaded(1)] == ["Send"]


@pytest.mark.parametrize("start", [BOTH, NONE])
@pytest.mark.parametrize("tokens", [1, 16])
def test_time_to_first_token_from_zero_is_load_and_prefill_to_the_nanosecond(
    start: dict[Role, int], tokens: int
) -> None:
    setting = Setting(hosts=2, gpus_per_host=4, start=start, bounds=dict.fromkeys(start, (0, 4)))
    arrival_ns = 12_345_678_901
    case = on_links(Drawn(setting, ((Request(0, arrival_ns, tokens, 10, "m"), 5),)))
    recorder, _, checked = simulate(case)
    loaded = [now_ns for now_ns, event, _ in map(json.loads, checked.lines) if event[:3] == ["loaded", 0, 0]]
    prefill_ns = ROWS.mixed(0, 0, ((0, 0, tokens),)) >> 24
    assert recorder.done[0][2] == loaded[-1] + prefill_ns
    # From host memory at PCIe's rate, 16 GB/s at best.
    shortest_ns = case.setting.size_bytes * 1e9 / 16e9
    assert shortest_ns < loaded[-1] - arrival_ns < 1.5 * shortest_ns


def test_two_requests_from_zero_wait_for_one_load() -> None:
    setting = Setting(hosts=2, gpus_per_host=4, start=BOTH, bounds={"both": (0, 4)})
    requests = tuple((Request(id, id, 4, 10, "m"), 5) for id in range(2))
    recorder, _, checked = simulate(on_links(Drawn(setting, requests)))
    assert len([line for line in checked.lines if '"load",' in line]) == 1
    first, second = (recorder.done[id][2] for id in range(2))
    assert second - first == ROWS.mixed(0, 0, ((1, 0, 4),)) >> 24  # it was taken before the other came


def test_where_no_host_has_a_copy_it_comes_from_the_remote_store() -> None:
    told = both(provision="host", copies="ttl")
    assert told.arrive(0)[:2] == [place(0), load(0, ("remote", 0), 0)]
