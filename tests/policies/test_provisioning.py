"""Provisioners: the papers' plans from holders and seats, the order of supply, laws over drawn requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.multicast.planner import MulticastPlanner, NaivePlanner, OneToOnePlanner
from policies.provisioning import BinomialProvisioner, NetworkProvisioner, StoreProvisioner
from serving.protocols.planning import Edge, Plan, Planner, Port, ScaleUp, Source, Target
from serving.protocols.provisioning import (
    GpuSlot,
    MissingInstances,
    Provision,
    Provisioned,
    Provisioner,
    missing_instances,
)
from serving.vocabulary.actions import Endpoint, Shard
from tests.worlds.multicast_plans import (
    B,
    arrows,
    host,
    pair,
    port,
    scale_time_s,
    source,
)

NVLINK = 200_000_000_000  # 1.6 Tbps
STORES = ("ssd", "remote")
NETWORK: list[NetworkProvisioner] = [
    NetworkProvisioner(),
    NetworkProvisioner(order="depth"),
    NetworkProvisioner(grouping="instance"),
    NetworkProvisioner("naive"),
    NetworkProvisioner("one_to_one"),
    NetworkProvisioner(scale_up_first=False),
]
PROVISIONERS: list[Provisioner] = [
    *NETWORK,
    StoreProvisioner(),
    StoreProvisioner(("host",)),
    StoreProvisioner(("ssd",), overlap=True),
    BinomialProvisioner(),
]


def seat(one: int, *ports: Port, at: int = 0, cached: bool = False) -> GpuSlot:
    """A seat of host ``at``, one GPU with a NIC and a domain of its own unless told."""
    found = ports or (port(one),)
    return GpuSlot(one, tuple(item.gpu for item in found), at, found, cached)


def request(
    holders: Sequence[Source],
    seats: Sequence[GpuSlot],
    count: int | None = None,
    copies: Sequence[Source] = (),
    stores: tuple[str, ...] = STORES,
    scale_up: int = NVLINK,
) -> Provision:
    many = len(seats) if count is None else count
    return Provision("m", "prefill", many, tuple(seats), tuple(holders), tuple(copies), stores, scale_up)


def as_plan(answer: Provisioned) -> Plan:
    return Plan(answer.edges, answer.reason)


def drawn(answer: Provisioned) -> list[tuple[list[int], list[int]]]:
    return arrows(as_plan(answer))


# ---- golden plans of the papers, from holders and seats


# ---- the order of supply


def test_a_neighbour_of_a_holder_loads_over_their_links_and_forwards() -> None:
    """24B on two GPUs: seats 1 and 2 beside instance 0; seats 4 and 5 on another host."""
    seats = [seat(one, *pair(one, 0)) for one in (2, 1)] + [seat(one, *pair(one, 1), at=1) for one in (4, 5)]
    answer = NetworkProvisioner().provision(request([source(0, *pair(0, 0))], seats))
    near, far = answer.edges
    assert drawn(answer) == [([0], [1, 2]), ([0, 1], [4, 5])]
    assert near.rate_bytes_per_s == 2 * NVLINK
    assert near.shards == tuple(
        Shard(rank, target, 0.25, NVLINK / 2) for rank, target in ((0, 2), (0, 4), (1, 3), (1, 5))
    )
    assert near.reason == "inside domain 0, 1 of 1 holders to 2: 400 GB/s"
    assert far.rate_bytes_per_s == 4 * B
    assert answer.reason == (
        "4 of 4 prefill instances: 2 beside a holder, 2 over the network (2 of 2 instances; breadth; "
        "1 running instances, 0 pruned, 2 that load)"
    )


def test_who_loads_beside_a_holder_stands_behind_those_that_have_everything() -> None:
    """Holder 9 comes first, though 1 has the lower number and its leaf the more bandwidth."""
    old = [source(0, port(0, domain=0)), source(9, port(9, leaf=1))]
    new = [seat(1, port(1, domain=0)), *(seat(one, port(one, leaf=one)) for one in (2, 3, 4))]
    answer = NetworkProvisioner().provision(request(old, new))
    assert drawn(answer) == [([0], [1]), ([0], [2]), ([9], [3]), ([1], [4])]


def test_when_holders_are_busy_those_they_feed_inside_their_domain_forward() -> None:
    old = [source(0, port(0, domain=0), busy=True)]
    new = [seat(1, port(1, domain=0)), seat(2), seat(3)]
    copies = [host(5)]
    assert drawn(NetworkProvisioner().provision(request(old, new, copies=copies))) == [
        ([0], [1]), ([1], [2]), ([2], [3])
    ]  # fmt: skip
    beside_prefill = [replace(new[0], ports=(replace(new[0].ports[0], serves_prefill=True),)), *new[1:]]
    answer = NetworkProvisioner().provision(request(old, beside_prefill, copies=copies))
    assert [edge.sources for edge in answer.edges[1:]] == [(("host", 5),), (("replica", 2),)]


def test_who_loads_beside_a_busy_holder_forwards_before_a_hosts_memory_is_read() -> None:
    old = [source(0, port(0, domain=0), busy=True)]
    new = [seat(1, port(1, domain=0)), seat(2, cached=True)]
    answer = NetworkProvisioner().provision(request(old, new, copies=[host(0)]))
    assert drawn(answer) == [([0], [1]), ([1], [2])]


def test_of_the_holders_in_a_domain_a_free_one_sends() -> None:
    old = [source(one, port(one, domain=0), busy=one != 2) for one in range(4)]
    assert drawn(NetworkProvisioner().provision(request(old, [seat(5, port(5, domain=0))]))) == [([2], [5])]
    busy = [replace(one, out_busy=True) for one in old]
    assert drawn(NetworkProvisioner().provision(request(busy, [seat(5, port(5, domain=0))]))) == [([0], [5])]


def test_inside_a_domain_one_that_loads_forwards_before_a_busy_holder_is_asked() -> None:
    """Instance 0 feeds 1 already: another load from it would take half of its link from the first."""
    old = [replace(source(0, port(0, domain=0), busy=True), loads=1)]
    new = [seat(one, port(one, domain=0)) for one in (2, 3)]
    tail = source(1, port(1, domain=0))
    answer = NetworkProvisioner().provision(replace(request(old, new), loading=(tail,)))
    assert drawn(answer) == [([1], [2, 3])]
    assert answer.edges[0].reason == "inside domain 0, 1 of 2 holders, behind its load, to 2: 200 GB/s"
    naive = NetworkProvisioner("naive").provision(replace(request(old, new), loading=(tail,)))
    assert drawn(naive) == [([0], [2, 3])], "forwarding is what multicast means"
    idle = [*old, source(5, port(5, domain=0))]
    assert drawn(NetworkProvisioner().provision(replace(request(idle, new), loading=(tail,)))) == [
        ([5], [2, 3])
    ]


def test_of_busy_holders_in_a_domain_the_one_with_the_fewest_loads_sends() -> None:
    """Prefill instances 1 and 2 send KV, decode instance 0 feeds two loads, nobody else is there."""
    old = [
        replace(source(one, port(one, domain=0), busy=True), loads=loads)
        for one, loads in enumerate((2, 1, 0))
    ]
    assert drawn(NetworkProvisioner().provision(request(old, [seat(5, port(5, domain=0))]))) == [([2], [5])]


def test_domains_without_links_of_their_own_or_not_preferred_are_served_over_the_network() -> None:
    old, new = [source(0, port(0, domain=0))], [seat(1, port(1, domain=0)), seat(2, port(2, rate=2 * B))]
    without = NetworkProvisioner().provision(request(old, new, scale_up=0))
    not_first = NetworkProvisioner(scale_up_first=False).provision(request(old, new))
    assert drawn(without) == drawn(not_first) == [([0], [2]), ([2], [1])]
    assert drawn(NetworkProvisioner().provision(request(old, new, 1))) == [([0], [1])]


def test_without_a_replica_each_host_feeds_its_own_and_then_they_forward() -> None:
    copies = [host(0), host(1)]
    new = [seat(1, at=0, cached=True), seat(2, at=1, cached=True), seat(3, at=2), seat(4, at=3)]
    answer = NetworkProvisioner().provision(request([], new, copies=copies))
    own = "no replica is free to send (0 hold it), host memory is nearer than the network"
    assert answer.edges[:2] == (
        Edge((("host", 0),), (("replica", 1),), 0, (), f"host 0: {own}"),
        Edge((("host", 1),), (("replica", 2),), 0, (), f"host 1: {own}"),
    )
    assert drawn(answer)[2:] == [([1], [3]), ([2], [4])]
    naive = NetworkProvisioner("naive").provision(request([], new, copies=copies))
    assert naive.edges[:2] == answer.edges[:2] and drawn(naive) == drawn(answer)
    (*_, third, fourth) = NetworkProvisioner("one_to_one").provision(request([], new, copies=copies)).edges
    assert (third.sources, fourth.sources) == ((("host", 0),), (("host", 1),)), "nobody forwards"


def test_network_host_copies_send_when_no_seat_has_one_at_home() -> None:
    new = [seat(3, at=2), seat(4, at=3)]
    answer = NetworkProvisioner().provision(request([source(0, busy=True)], new, copies=[host(7)]))
    assert [edge.sources for edge in answer.edges] == [(("host", 7),), (("replica", 3),)]
    naive = NetworkProvisioner("naive").provision(request([source(0, busy=True)], new, copies=[host(7)]))
    assert drawn(naive) == [([0], [3]), ([3], [4])]


def test_a_busy_holder_leaves_a_cached_seat_to_its_host_unless_the_planner_is_naive() -> None:
    case = request([source(0, busy=True)], [seat(2, cached=True)], copies=[host(0)])
    for provisioner, sender in (
        (NetworkProvisioner(), ("host", 0)),
        (NetworkProvisioner("naive"), ("replica", 0)),
        (NetworkProvisioner("one_to_one"), ("replica", 0)),
    ):
        (edge,) = provisioner.provision(case).edges
        assert edge.sources == (sender,)
    free = replace(case, holders=(source(0),))
    assert drawn(NetworkProvisioner().provision(free)) == [([0], [2])]


def test_one_to_one_loads_only_from_those_that_have_everything() -> None:
    old, new = [source(0, port(0, domain=0))], [seat(1, port(1, domain=0)), seat(2), seat(3)]
    answer = NetworkProvisioner("one_to_one").provision(request(old, new))
    assert drawn(answer) == [([0], [1]), ([0], [2]), ([0], [3])]
    assert [edge.rate_bytes_per_s for edge in answer.edges] == [NVLINK, B // 2, B // 2]


def test_what_cannot_be_had_is_said() -> None:
    nobody = NetworkProvisioner().provision(request([], [seat(1)]))
    assert nobody == Provisioned((), False, "0 of 1 prefill instances: 1 without a source", "no_copy")
    full = NetworkProvisioner().provision(request([source(0)], [], 2))
    assert full.reason == "0 of 2 prefill instances: 2 without a seat"
    assert BinomialProvisioner().provision(request([source(0)], [], 2)).edges == ()
    some = StoreProvisioner(("host",)).provision(request([], [seat(1, cached=True), seat(2)], stores=()))
    assert some.reason == "1 of 2 prefill instances: 1 from host, 1 without a source"
    assert StoreProvisioner().provision(request([], [seat(1)], 0)).reason.endswith("instances: none wanted")


def test_what_is_missing_has_one_obstacle() -> None:
    """Full first, then what the provisioner says, then what its request shows."""
    no_seat, nowhere = request([source(0)], [], 2), request([], [seat(1)], stores=())
    two_of_three = request([source(0)], [seat(1), seat(2)], 3)
    for provisioner in PROVISIONERS:
        assert missing_instances(no_seat, provisioner.provision(no_seat)) == MissingInstances(2, "no_gpu")
        assert missing_instances(nowhere, provisioner.provision(nowhere)) == MissingInstances(1, "no_copy")
    assert missing_instances(two_of_three, BinomialProvisioner().provision(two_of_three)) == MissingInstances(
        1, "no_gpu"
    )
    assert missing_instances(two_of_three, Provisioned((), False, "mine")) == MissingInstances(3, "no_path")
    assert missing_instances(nowhere, Provisioned((), False, "mine")) == MissingInstances(1, "no_copy")
    assert missing_instances(nowhere, Provisioned((), False, "mine", "no_path")) == MissingInstances(
        1, "no_path"
    )
    assert missing_instances(request([], [seat(1)], 0), Provisioned((), False, "none wanted")) is None
    elsewhere = request([], [seat(1)], stores=("ssd",))  # this one does not look there
    assert missing_instances(elsewhere, NetworkProvisioner().provision(elsewhere)) == MissingInstances(
        1, "no_copy"
    )


@pytest.mark.parametrize(
    ("kind", "key", "value", "remedy"),
    [
        (NetworkProvisioner, "planner", "fastest", "multicast, naive or one_to_one"),
        (NetworkProvisioner, "order", "width", "breadth or depth"),
        (NetworkProvisioner, "grouping", "host", "domain or instance"),
        (StoreProvisioner, "tiers", ["host", "tape"], "tape, and must be host, ssd or remote"),
        (StoreProvisioner, "tiers", [], "one or more of host, ssd, remote, each once"),
        (StoreProvisioner, "tiers", ["ssd", "ssd"], "one or more of host, ssd, remote, each once"),
    ],
)
def test_words_that_make_no_sense_are_refused(kind: Any, key: str, value: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"^{key} is .*{remedy}"):
        kind(**{key: value})


# ---- stores: ServerlessLLM, AllCache, PipeSwitch


def test_the_seat_that_starts_first_is_the_one_whose_host_has_it_in_memory() -> None:
    seats = [seat(5, at=2, cached=True), seat(0), seat(1), seat(4, at=1, cached=True)]
    answer = StoreProvisioner().provision(request([source(9)], seats, 3))
    assert answer.edges == (
        Edge((("host", 1),), (("replica", 4),), 0, (), "host 1: host is tier 1 of 3"),
        Edge((("host", 2),), (("replica", 5),), 0, (), "host 2: host is tier 1 of 3"),
        Edge((("ssd", 0),), (("replica", 0),), 0, (), "ssd 0: ssd is tier 2 of 3, not in host"),
    )
    assert answer.reason == "3 of 3 prefill instances: 2 from host, 1 from ssd"
    assert not answer.overlap


def test_tiers_say_which_stores_count_and_in_which_order() -> None:
    seats = [seat(0), seat(1, cached=True)]

    def senders(*tiers: str, stores: tuple[str, ...] = STORES) -> list[Endpoint]:
        answer = StoreProvisioner(tiers).provision(request([], seats, stores=stores))
        assert all(len(edge.sources) == len(edge.targets) == 1 for edge in answer.edges)
        return [edge.sources[0] for edge in answer.edges]

    assert senders("ssd") == [("ssd", 0), ("ssd", 0)], "all from SSD"
    assert senders("host") == [("host", 0), ("remote", 0)]
    assert senders("host", "ssd", stores=("remote",)) == [("host", 0), ("remote", 0)]
    assert senders("remote", "host") == [("remote", 0), ("remote", 0)]
    assert senders("host", "ssd", stores=()) == [("host", 0)]


def test_with_a_copy_everywhere_seats_are_taken_in_order_and_pipeswitch_overlaps() -> None:
    """AllCache: every host has it."""
    seats = [seat(one, at=one // 2, cached=True) for one in (3, 0, 2, 1)]
    answer = StoreProvisioner(("host",), overlap=True).provision(request([], seats, 3))
    assert [(edge.sources, edge.targets) for edge in answer.edges] == [
        ((("host", 0),), (("replica", 0),)),
        ((("host", 0),), (("replica", 1),)),
        ((("host", 1),), (("replica", 2),)),
    ]
    assert answer.overlap


# ---- doublings


def test_seven_seats_are_served_in_three_doublings() -> None:
    answer = BinomialProvisioner().provision(request([source(0)], [seat(one) for one in range(1, 8)]))
    tree = [([0], [1]), ([0], [2]), ([1], [3]), ([0], [4]), ([1], [5]), ([2], [6]), ([3], [7])]
    assert drawn(answer) == tree
    assert [edge.reason.split(",")[0] for edge in answer.edges] == [
        "round 1", "round 2", "round 2", "round 3", "round 3", "round 3", "round 3"
    ]  # fmt: skip
    rates = {edge.targets[0][1]: edge.rate_bytes_per_s for edge in answer.edges}
    assert rates == {1: B // 3, 2: B // 3, 4: B // 3, 3: B // 2, 5: B // 2, 6: B, 7: B}


def test_doublings_take_their_rounds_times_one_transfer() -> None:
    """16 GB in units of 1 MB at 12.5 GB/s: 1.28 s a round, 3 rounds from 1 to 7, 1 from 4 to 4."""
    seats = [seat(one) for one in range(10, 17)]
    plan = as_plan(BinomialProvisioner().provision(request([source(0)], seats)))
    assert scale_time_s(plan, 16 * 10**9, 10**6) == pytest.approx(3 * 1.28, rel=1e-3)
    wide = request([source(one) for one in range(4)], seats[:4])
    assert scale_time_s(as_plan(BinomialProvisioner().provision(wide)), 16 * 10**9, 10**6) == pytest.approx(
        1.28
    )


def test_a_nic_that_a_source_and_a_forwarder_share_is_divided() -> None:
    """Out of NIC 50 go two halves of instance 0 and all of seat 1: twice what it has."""
    seats = [seat(1, port(1, nic=50)), seat(2), seat(3)]
    answer = BinomialProvisioner().provision(request([source(0, port(0, nic=50))], seats))
    assert drawn(answer) == [([0], [1]), ([0], [2]), ([1], [3])]
    assert [edge.rate_bytes_per_s for edge in answer.edges] == [B // 4, B // 4, B // 2]


def test_doublings_begin_at_host_copies_only_without_an_instance() -> None:
    seats, copies = [seat(one) for one in (1, 2, 3)], [host(7)]
    from_host = BinomialProvisioner().provision(request([], seats, copies=copies))
    assert [edge.sources for edge in from_host.edges] == [(("host", 7),), (("host", 7),), (("replica", 1),)]
    busy = BinomialProvisioner().provision(request([source(0, busy=True)], seats, copies=copies))
    assert drawn(busy) == [([0], [1]), ([0], [2]), ([1], [3])]
    assert BinomialProvisioner().provision(request([], seats)).edges == ()


# ---- laws over drawn requests


@st.composite
def requests(draw: st.DrawFn) -> Provision:
    """Hosts of 4 seats on one or two leaves, some seats held, host memory, domains of a host or of a seat."""
    tp, hosts = draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 4))
    shared, joined = draw(st.booleans()), draw(st.booleans())
    prefill = draw(st.lists(st.booleans(), min_size=hosts * 4 * tp, max_size=hosts * 4 * tp))
    cached = draw(st.lists(st.booleans(), min_size=hosts, max_size=hosts))

    def ports(one: int) -> tuple[Port, ...]:
        gpus = range(one * tp, one * tp + tp)
        domain = one // 4 if joined else one
        nics = [gpu // 2 if shared else gpu for gpu in gpus]
        return tuple(Port(gpu, domain, one // 8, nic, B, prefill[nic]) for gpu, nic in zip(gpus, nics))

    states = draw(st.lists(st.sampled_from("hbsss-"), min_size=hosts * 4, max_size=hosts * 4))
    holders = [
        source(one, *ports(one), busy=state == "b") for one, state in enumerate(states) if state in "hb"
    ]
    seats = [
        seat(one, *ports(one), at=one // 4, cached=cached[one // 4])
        for one, state in enumerate(states)
        if state == "s"
    ]
    copies = [
        host(at, port(-1, domain=-1, leaf=at // 2, nic=1000 + at), busy=draw(st.booleans()))
        for at in range(hosts)
        if cached[at]
    ]
    stores = draw(st.sampled_from(((), ("ssd",), ("remote",), STORES)))
    return request(
        holders, seats, draw(st.integers(0, 12)), copies, stores, draw(st.sampled_from((0, NVLINK)))
    )


@given(requests(), st.sampled_from(PROVISIONERS))
def test_every_seat_at_most_once_and_as_many_as_can_be(case: Provision, provisioner: Provisioner) -> None:
    answer = provisioner.provision(case)
    chosen = as_plan(answer).replicas
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {one.replica for one in case.slots}
    if isinstance(provisioner, StoreProvisioner):
        return
    fed = case.holders or case.host_copies
    assert len(chosen) == (min(case.count, len(case.slots)) if fed else 0)
    assert answer.reason.startswith(f"{len(chosen)} of {case.count} prefill instances: ")


@given(requests(), st.sampled_from(PROVISIONERS))
def test_nobody_sends_what_it_will_not_have(case: Provision, provisioner: Provisioner) -> None:
    there: set[Endpoint] = {one.endpoint for one in (*case.holders, *case.host_copies)}
    there |= {("ssd", one.host) for one in case.slots if "ssd" in case.stores}
    there |= {("remote", 0)} if "remote" in case.stores else set()
    at = {one.replica: one for one in case.slots}
    for edge in provisioner.provision(case).edges:
        assert edge.sources and there.issuperset(edge.sources)
        there |= set(edge.targets)
        if edge.shards:
            assert sum(shard.share for shard in edge.shards) == pytest.approx(1)
            assert sum(shard.rate_bytes_per_s for shard in edge.shards) == pytest.approx(
                edge.rate_bytes_per_s
            )
            gpus = [gpu for _, number in edge.targets for gpu in at[number].gpus]
            assert {shard.target_gpu for shard in edge.shards} == set(gpus)
        else:
            ((kind, place),), ((_, number),) = edge.sources, edge.targets
            assert edge.rate_bytes_per_s == 0
            assert place == (0 if kind == "remote" else at[number].host)
            assert kind != "host" or at[number].cached


@given(requests(), st.sampled_from(PROVISIONERS), st.integers(0, 2**32))
def test_the_order_of_the_request_means_nothing(case: Provision, provisioner: Provisioner, seed: int) -> None:
    random = Random(seed)

    def mixed(what: Any) -> Any:
        return tuple(random.sample(what, len(what)))

    other = replace(
        case, slots=mixed(case.slots), holders=mixed(case.holders), host_copies=mixed(case.host_copies)
    )
    assert provisioner.provision(other) == provisioner.provision(case)


@given(requests())
def test_domains_of_holders_come_first_with_one_edge_each(case: Provision) -> None:
    held = {one.ports[0].domain for one in case.holders}
    beside = {one.replica for one in case.slots if one.ports[0].domain in held}
    domain = {one.replica: one.ports[0].domain for one in (*case.slots,)}
    domain |= {one.endpoint[1]: one.ports[0].domain for one in case.holders}
    answer = NetworkProvisioner().provision(case)
    near = [edge for edge in answer.edges if edge.reason.startswith("inside domain")]
    started = {number for edge in near for _, number in edge.targets}
    assert near == list(answer.edges[: len(near)])
    assert len(started) == (min(case.count, len(beside)) if case.scale_up_bytes_per_s else 0)
    assert started == set(sorted(beside)[: len(started)]), "packed in the order of their numbers"
    assert all(len(edge.sources) == 1 for edge in near)
    inside = [{domain[number] for _, number in (*edge.sources, *edge.targets)} for edge in near]
    assert all(len(found) == 1 for found in inside) and max(map(len, inside), default=0) <= 1
    assert len({min(found) for found in inside}) == len(inside)


@given(requests())
def test_busy_replicas_send_over_the_network_only_when_nothing_else_can(case: Provision) -> None:
    answer = NetworkProvisioner().provision(case)
    busy = {one.endpoint for one in case.holders if one.out_busy}
    free = {one.endpoint for one in (*case.holders, *case.host_copies) if not one.out_busy}
    far = [edge for edge in answer.edges if not edge.reason.startswith("inside domain")]
    if free:
        assert not busy & {stop for edge in far for stop in edge.sources}
    if any(kind == "replica" for kind, _ in free):
        assert not any(kind == "host" for edge in far for kind, _ in edge.sources)


@given(requests(), st.sampled_from(["multicast", "naive", "one_to_one"]))
def test_over_the_network_alone_a_provisioner_is_its_planner(case: Provision, name: Any) -> None:
    case = replace(case, slots=tuple(replace(one, cached=False) for one in case.slots))
    planners: dict[str, Planner] = {
        "multicast": MulticastPlanner(), "naive": NaivePlanner(), "one_to_one": OneToOnePlanner()
    }  # fmt: skip
    targets = tuple(Target(one.replica, one.ports) for one in case.slots)
    tp = len(case.holders[0].ports if case.holders else targets[0].ports if targets else "1")
    plan = planners[name].plan(ScaleUp((*case.holders, *case.host_copies), targets, case.count, tp))
    assert NetworkProvisioner(name, scale_up_first=False).provision(case).edges == plan.edges


@given(requests(), st.sampled_from([*NETWORK, BinomialProvisioner()]))
def test_no_nic_is_asked_for_more_than_it_has(case: Provision, provisioner: Provisioner) -> None:
    everywhere = [item for one in case.slots for item in one.ports]
    everywhere += [item for one in case.holders for item in one.ports]
    nic_of = {item.gpu: item.nic for item in everywhere}
    out: defaultdict[int, float] = defaultdict(float)
    into: defaultdict[int, float] = defaultdict(float)
    for edge in provisioner.provision(case).edges:
        if edge.reason.startswith("inside domain"):
            assert edge.rate_bytes_per_s == NVLINK * len(case.slots[0].ports)
            continue
        for shard in edge.shards:
            into[nic_of[shard.target_gpu]] += shard.rate_bytes_per_s
            if shard.source_gpu >= 0:
                out[nic_of[shard.source_gpu]] += shard.rate_bytes_per_s
    assert max((*out.values(), *into.values()), default=0) <= B * (1 + 1e-9)


@given(requests())
def test_doublings_double(case: Provision) -> None:
    """After k rounds there are 2^k times as many who have it as at the start; each feeds one per round."""
    answer = BinomialProvisioner().provision(case)
    first = len(case.holders) or len(case.host_copies)
    rounds = [int(edge.reason.split()[1].strip(",")) for edge in answer.edges]
    assert rounds == sorted(rounds)
    if answer.edges:
        assert rounds[-1] == ceil(log2((first + len(answer.edges)) / first) - 1e-9)
    for turn in set(rounds):
        givers = [edge.sources for edge, at in zip(answer.edges, rounds) if at == turn]
        assert len(set(givers)) == len(givers)
        if turn < rounds[-1]:
            assert len(givers) == first * 2 ** (turn - 1)
