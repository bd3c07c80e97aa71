"""Free slots as sets of bits: the same slots, numbers and order as lists of them."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from serving.elastic.free_groups import FreeGroups, SlotNumbers, firsts_of
from serving.elastic.instances import Instances
from serving.elastic.offered_slots import OfferedSlots
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.planning import Port
from serving.protocols.provisioning import GpuSlot, Provision
from tests.worlds.elastic_world import Setting

HOSTS, PER_HOST = 6, 4


def cluster_map(domain_hosts: int = 1) -> ClusterMap:
    per_domain = domain_hosts * PER_HOST
    return ClusterMap(
        gpus_per_host=PER_HOST,
        ports=tuple(Port(gpu, gpu // per_domain * per_domain, 0, gpu // 2, 100) for gpu in range(24)),
        host_ports=tuple(
            tuple(Port(-1, 0, 0, host * 2 + nic, 100) for nic in range(2)) for host in range(HOSTS)
        ),
        scale_up_bytes_per_s=0,
        stores=("ssd",),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_free_groups_follow_the_owners(size: int) -> None:
    cluster, random = cluster_map(2), Random(size)
    owner = [-1] * 24
    groups = FreeGroups(cluster, owner)
    for _ in range(60):
        gpus = random.sample(range(24), 3)
        for gpu in gpus:
            owner[gpu] = random.choice([-1, -1, -2, 7])
        groups.update(gpus)
        regions = [range(start, start + 8) for start in range(0, 24, 8)] if size == 8 else None
        regions = regions or [range(start, start + 4) for start in range(0, 24, 4)]
        free = [
            first
            for region in regions
            for first in range(region.start, region.stop - size + 1, size)
            if all(owner[gpu] == -1 for gpu in range(first, first + size))
        ]
        assert firsts_of(groups.of(size)) == free and groups.count(size) == len(free)
        assert groups.any() == bool(free)


def test_numbers_are_given_in_order_as_models_look_and_found_again() -> None:
    random, numbers = Random(5), SlotNumbers()
    given: dict[tuple[str, int], int] = {}
    for _ in range(40):
        model, groups = random.choice("abc"), random.getrandbits(70)
        runs = numbers.number(model, groups)
        for first in firsts_of(groups):
            given.setdefault((model, first), len(given))
        for (name, first), number in given.items():
            assert numbers.place_of(number) == (name, first)
            if name == model:
                assert [run.number_of(first) for run in runs if run.groups >> first & 1] == [number]


class Case:
    """A model with some slots taken in between, so that its slots got their numbers in several runs."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        size = random.choice([1, 1, 2, 4, 8])
        cluster = cluster_map(2)
        if random.random() < 0.5:
            cluster = replace(cluster, lost_ssds=frozenset(random.sample(range(HOSTS), 2)))
        self.cluster = cluster
        setting = Setting(models={"m": size, "o": 1})
        self.instances = Instances(cluster, {name: setting.prototype(name) for name in "mo"}, [])
        for _ in range(random.randrange(4)):
            self.change()
        self.copies = random.sample(range(HOSTS), random.randrange(HOSTS))
        nics = self.instances.prefilling_nics
        self.slots = OfferedSlots(self.instances.free_slots("m"), cluster, self.copies, nics)

    def change(self) -> None:
        instances, random = self.instances, self.random
        instances.free_slots("m")
        for number in random.sample(sorted(instances.live), len(instances.live) // 2):
            instances.free(number)
        for _ in range(random.randrange(4)):
            if free := instances.free_slots("o").every():
                role = random.choice(["prefill", "decode"])
                instances.place(random.choice(free)[0], role, "serving")  # type: ignore[arg-type]

    def expected(self) -> tuple[GpuSlot, ...]:
        """The slots as lists and loops make them."""
        instances, cluster, made = self.instances, self.cluster, []
        prefilling = {
            cluster.ports[gpu].nic
            for one in instances.live.values()
            if one.role == "prefill"
            for gpu in one.replica.gpus
        }
        for number, first in instances.free_slots("m").every():
            gpus = instances.replica(number).gpus
            assert gpus[0] == first
            ports = [replace(one, serves_prefill=one.nic in prefilling) for one in map(self.port, gpus)]
            lost = any(gpu // PER_HOST in cluster.lost_ssds for gpu in gpus)
            host = first // PER_HOST
            made.append(GpuSlot(number, gpus, host, tuple(ports), host in self.copies, lost))
        return tuple(sorted(made, key=lambda slot: slot.replica))

    def port(self, gpu: int) -> Port:
        return self.cluster.ports[gpu]


def wanted(slots: Sequence[GpuSlot]) -> Provision:
    return Provision("m", "prefill", 1, slots, (), (), ("ssd",), 0)


@pytest.mark.parametrize("seed", range(60))
def test_slots_that_are_made_when_read_are_those_of_a_list(seed: int) -> None:
    case = Case(seed)
    listed, random = case.expected(), case.random
    made, read = wanted(listed), wanted(case.slots)
    for _ in range(20):
        count, host = random.choice([0, 1, 1, 2, 5, 99]), random.choice([-1, -1, *range(HOSTS), 10**9])
        cached, with_ssd = random.random() < 0.5, random.random() < 0.5
        besides = set(random.sample(range(30), 3))
        domains = random.choice([None, None, {*random.sample(range(-1, 24), 9)}])
        first = [
            one.first_slots(
                count, cached=cached, with_ssd=with_ssd, host=host, domains=domains, besides=besides
            )
            for one in (made, read)
        ]
        assert first[0] == first[1]
    for number in (*range(-1, 40), 10**12):
        assert made.slot(number) == read.slot(number)
    assert tuple(case.slots) == listed and len(case.slots) == len(listed)
    assert list(case.slots[:2]) == list(listed[:2]) and bool(case.slots) == bool(listed)


def test_what_was_offered_stays_as_it_was() -> None:
    case = Case(3)
    before, number = case.expected(), case.slots[0].replica
    case.instances.place(number, "prefill", "serving")
    assert tuple(case.slots) == before and case.slots.numbered(number) == before[0]


def test_nics_that_serve_prefill_follow_roles_states_and_lost_nics() -> None:
    case = Case(0)
    instances = Instances(case.cluster, {"o": Setting(models={"o": 1}).prototype("o")}, [])
    instances.free_slots("o")
    nics = lambda: firsts_of(instances.prefilling_nics)  # noqa: E731
    instances.place(0, "prefill", "loading")
    assert nics() == []
    instances.loaded(0)
    instances.place(1, "prefill", "serving")
    instances.place(4, "decode", "serving")
    assert nics() == [0]
    instances.drain(0)
    assert nics() == [0]
    instances.switch_role(4, "prefill")
    instances.terminate(1)
    assert nics() == [2]
    instances.rewired(case.cluster.without_nic(2))
    assert nics() == [3]
    instances.lost(4)
    assert nics() == []
