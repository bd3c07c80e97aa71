"""The multicast planner: the papers' plans by hand, Fig. 11 written a second time, laws, quality."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.multicast.planner import MulticastPlanner, NaivePlanner, OneToOnePlanner, Order
from policies.multicast.quality import chain_time_s, interference
from serving.protocols.planning import Edge, Plan, Planner, Port, ScaleUp, Source, Target
from serving.vocabulary.actions import Shard
from tests.worlds.multicast_plans import (
    GB,
    LAYER_24B,
    SIZE_24B,
    B,
    arrows,
    chains_of,
    host,
    pair,
    port,
    scale_time_s,
    source,
    stops,
)

CHAINING: list[Planner] = [
    MulticastPlanner(),
    MulticastPlanner("depth"),
    MulticastPlanner(grouping="instance"),
]
FIG_11: list[Planner] = [*CHAINING, NaivePlanner()]
PRUNING: list[Planner] = [*CHAINING, OneToOnePlanner(prune=True)]
PLANNERS: list[Planner] = [*PRUNING, NaivePlanner(), OneToOnePlanner()]


def target(one: int, *ports: Port) -> Target:
    return Target(one, ports or (port(one),))


def wanted(
    sources: Sequence[Source], targets: Sequence[Target], n: int | None = None, tp: int = 1
) -> ScaleUp:
    return ScaleUp(tuple(sources), tuple(targets), len(targets) if n is None else n, tp)


# ---- golden plans of the papers; tests/policies/test_provisioning.py has them from holders and seats


def test_fig_7_a_new_prefill_instance_loads_from_a_decode_instance() -> None:
    """Fig. 7: the prefill instance's out-link carries KV, the decode instance's does not."""
    case = wanted([source(0, busy=True), source(1)], [target(2)])
    plan, naive = MulticastPlanner().plan(case), NaivePlanner().plan(case)
    assert (arrows(plan), interference(plan, case)) == ([([1], [2])], 0)
    assert (arrows(naive), interference(naive, case)) == ([([0], [2])], 1)
    assert plan.reason == "1 of 1 instances; breadth; 1 running instances, 1 pruned"


@pytest.mark.parametrize("order", ["breadth", "depth"])
def test_fig_12_one_source_and_two_targets_make_one_chain(order: Order) -> None:
    """Fig. 12(a)."""
    plan = MulticastPlanner(order).plan(wanted([source(0)], [target(1), target(2)]))
    assert chains_of(plan) == stops([0, 1, 2])


@pytest.mark.parametrize(("order", "chains"), [("breadth", ([0, 2], [1, 3])), ("depth", ([0, 2, 3],))])
def test_fig_12_two_sources_and_two_targets_make_two_chains(
    order: Order, chains: tuple[list[int], ...]
) -> None:
    """Fig. 12(b), which line 10 as printed ("depth") cannot give."""
    plan = MulticastPlanner(order).plan(wanted([source(0), source(1)], [target(2), target(3)]))
    assert chains_of(plan) == stops(*chains)


@pytest.mark.parametrize("planner", FIG_11)
def test_fig_13_the_faster_target_is_served_first(planner: Planner) -> None:
    """Fig. 13(b): S -> T2 -> T1 when BW(T2) = 2 BW(T1)."""
    plan = planner.plan(wanted([source(0, port(0, rate=2 * B))], [target(1), target(2, port(2, rate=2 * B))]))
    assert chains_of(plan) == stops([0, 2, 1])
    assert [edge.rate_bytes_per_s for edge in plan.edges] == [2 * B, B]


def test_fig_14_equal_groups_send_a_quarter_each() -> None:
    """Fig. 14: 4 GPUs to 4, each pair a quarter, then the targets exchange what they got."""
    old = [source(gpu, port(gpu, domain=0)) for gpu in range(4)]
    new = [target(gpu, port(gpu, domain=1)) for gpu in range(4, 8)]
    (edge,) = MulticastPlanner().plan(wanted(old, new)).edges
    assert edge.rate_bytes_per_s == 4 * B
    assert edge.shards == tuple(Shard(gpu, gpu + 4, 0.25, float(B)) for gpu in range(4))
    assert edge.reason == "inside leaf 0: 50 GB/s"


@pytest.mark.parametrize("planner", FIG_11)
def test_a_chain_of_eight_takes_little_longer_than_one_hop(planner: Planner) -> None:
    plan = planner.plan(wanted([source(0)], [target(one) for one in range(1, 9)]))
    assert chains_of(plan) == stops(list(range(9)))
    assert scale_time_s(plan, 16 * GB, GB) == pytest.approx((16 + 7) * GB / B)
    assert chain_time_s(16 * GB, B, 8, GB) == pytest.approx((16 + 7) * GB / B)


def six_24b(instances_per_domain: int) -> ScaleUp:
    old = [source(one, *pair(one, one // instances_per_domain)) for one in range(2)]
    new = [target(one, *pair(one, one // instances_per_domain)) for one in range(2, 8)]
    return wanted(old, new, tp=2)


def test_six_24b_instances_over_two_chains_of_three() -> None:
    plan = MulticastPlanner().plan(six_24b(instances_per_domain=1))
    assert chains_of(plan) == stops([0, 2, 4, 6], [1, 3, 5, 7])
    assert plan.edges[0].shards == (Shard(0, 4, 0.5, float(B)), Shard(1, 5, 0.5, float(B)))
    assert scale_time_s(plan, SIZE_24B, LAYER_24B) == pytest.approx(1.92 + 2 * 0.048)


@pytest.mark.parametrize(
    ("planner", "givers"),
    [
        (MulticastPlanner(), [0, 9, 1]),
        (NaivePlanner(), [0, 9, 1]),
        (MulticastPlanner("depth"), [0, 2, 3]),
        (OneToOnePlanner(), [0, 9, 0]),
    ],
)
def test_those_that_load_already_stand_behind_the_others(
    planner: MulticastPlanner | NaivePlanner | OneToOnePlanner, givers: list[int]
) -> None:
    """Targets on leaves without a source: 9 sends before 1, whose leaf has more; one to one leaves 1 out."""
    old, new = [source(0), source(9, port(9, leaf=1))], [target(n, port(n, leaf=n)) for n in (2, 3, 4)]
    plan = planner.plan(wanted(old, new), behind=[source(1)])
    assert [edge.sources for edge in plan.edges] == [(("replica", giver),) for giver in givers]


def test_those_that_load_already_send_before_host_copies_and_busy_instances() -> None:
    case = wanted([source(0, busy=True), host(7)], [target(2)])
    plan = MulticastPlanner().plan(case, behind=[source(1)])
    assert arrows(plan) == [([1], [2])]
    assert plan.reason == "1 of 1 instances; breadth; 0 running instances, 1 pruned, 1 that load"
    beside_prefill = [source(1, busy=True)]
    assert arrows(MulticastPlanner().plan(case, beside_prefill)) == [([7], [2])]


def test_groups_of_two_24b_instances_use_four_nics() -> None:
    """Four NICs on both sides (Fig. 21): 0.96 s instead of 1.92 s, and rank still sends to rank."""
    case = six_24b(instances_per_domain=2)
    plan = MulticastPlanner().plan(case)
    assert arrows(plan) == [([0, 1], [2, 3]), ([2, 3], [4, 5]), ([4, 5], [6, 7])]
    assert [(shard.source_gpu, shard.target_gpu) for shard in plan.edges[0].shards] == [
        (0, 4), (2, 6), (1, 5), (3, 7)
    ]  # fmt: skip
    assert scale_time_s(plan, SIZE_24B, LAYER_24B) == pytest.approx(0.96 + 2 * 0.024)
    alone = MulticastPlanner(grouping="instance").plan(case)
    assert chains_of(alone) == chains_of(plan) == stops([0, 2, 4, 6], [1, 3, 5, 7])


# ---- rules one by one


def test_host_copies_send_when_every_running_instance_is_busy() -> None:
    case = wanted([source(0, busy=True), host(7), source(1, busy=True)], [target(2), target(3)])
    plan = MulticastPlanner().plan(case)
    assert chains_of(plan) == ((("host", 7), ("replica", 2), ("replica", 3)),)
    assert [shard.source_gpu for edge in plan.edges for shard in edge.shards] == [-1, 2]
    assert plan.reason.endswith("host copies, 2 running instances pruned")


def test_a_busy_instance_sends_when_nobody_else_can() -> None:
    plan = MulticastPlanner().plan(wanted([source(0, busy=True), host(7, busy=True)], [target(1)]))
    assert (arrows(plan), plan.reason) == (
        [([0], [1])], "1 of 1 instances; breadth; running instances, all busy"
    )  # fmt: skip


@pytest.mark.parametrize("planner", PLANNERS)
def test_without_a_source_there_is_no_plan(planner: Planner) -> None:
    assert planner.plan(wanted([], [target(1)])) == Plan((), "0 of 1 instances; no source")


def test_a_host_copy_sends_every_rank_over_all_its_ports() -> None:
    copy = host(0, port(-1, nic=100), port(-1, nic=101), port(-1, nic=102), port(-1, nic=103))
    (edge,) = MulticastPlanner().plan(wanted([copy], [target(1, *pair(1, 0))], tp=2)).edges
    assert edge.rate_bytes_per_s == 2 * B
    assert edge.shards == (Shard(-1, 2, 0.5, float(B)), Shard(-1, 3, 0.5, float(B)))


def test_a_target_beside_a_prefill_gpu_on_its_nic_gets_half() -> None:
    beside = target(1, replace(port(1), serves_prefill=True))
    case = wanted([source(0)], [beside, target(2)])
    plan = MulticastPlanner().plan(case)
    assert chains_of(plan) == stops([0, 2, 1])
    assert [edge.rate_bytes_per_s for edge in plan.edges] == [B, B // 2]
    assert plan.edges[1].shards[0].rate_bytes_per_s == B / 2
    assert interference(plan, case) == 0


def test_forwarding_through_a_nic_that_serves_prefill_interferes() -> None:
    new = [target(one, replace(port(one), serves_prefill=True)) for one in (1, 2)]
    case = wanted([source(0)], new)
    assert interference(MulticastPlanner().plan(case), case) == 1


def test_targets_on_one_nic_share_it_only_if_both_are_started() -> None:
    new = [target(1, port(1, nic=50, rate=2 * B)), target(2, port(2, nic=50, rate=2 * B))]
    old = [source(0, port(0, rate=2 * B))]
    assert [edge.rate_bytes_per_s for edge in MulticastPlanner().plan(wanted(old, new)).edges] == [B, B]
    assert [edge.rate_bytes_per_s for edge in MulticastPlanner().plan(wanted(old, new, 1)).edges] == [2 * B]


def test_a_group_behind_one_nic_is_no_faster_for_its_size() -> None:
    crowded = [target(one, port(one, domain=9, nic=50)) for one in (2, 3, 4)]
    fast = target(5, port(5, rate=2 * B))
    plan = MulticastPlanner().plan(wanted([source(0, port(0, rate=2 * B))], [*crowded, fast]))
    assert arrows(plan) == [([0], [5]), ([5], [2, 3, 4])]


def test_sources_on_one_nic_share_it() -> None:
    old = [source(one, port(one, nic=50, rate=2 * B)) for one in (0, 1)]
    plan = MulticastPlanner().plan(wanted(old, [target(2, port(2, rate=2 * B))]))
    assert (arrows(plan), plan.edges[0].rate_bytes_per_s) == ([([0, 1], [2])], 2 * B)


def test_a_source_and_a_forwarder_on_one_nic_share_its_way_out() -> None:
    old = [source(0, port(0, nic=50)), source(1)]
    new = [target(2, port(2, nic=50)), target(3), target(4)]
    plan = MulticastPlanner().plan(wanted(old, new))
    assert arrows(plan) == [([0], [2]), ([1], [3]), ([2], [4])]
    assert [edge.rate_bytes_per_s for edge in plan.edges] == [B // 2, B, B // 2]
    assert plan.edges[2].shards == (Shard(2, 4, 1.0, B / 2),)
    assert plan.edges[2].reason == "inside leaf 0: 12.5 GB/s, 6.25 GB/s beside another sender on its NIC"


def test_a_load_stays_inside_the_leaf_that_can_serve_it() -> None:
    """Leaf 1 comes first among the sources, the target's leaf 0 has a source of its own."""
    old = [source(0, port(0, leaf=0)), source(1, port(1, leaf=1)), source(2, port(2, leaf=1))]
    new = [target(3, port(3, leaf=0)), target(4, port(4, leaf=1)), target(5, port(5, leaf=2))]
    plan = MulticastPlanner().plan(wanted(old, new))
    assert arrows(plan) == [([1], [4]), ([0], [3]), ([4], [5])]
    assert plan.edges[2].reason == "leaf 2 has 0 GB/s of 12.5 GB/s, so any: 12.5 GB/s"


def test_a_group_is_trimmed_to_whole_instances_the_fastest_kept() -> None:
    new = [target(one, port(one, domain=9, rate=one * B)) for one in (1, 2, 3)]
    assert MulticastPlanner().plan(wanted([source(0)], new, 2)).replicas == (3, 2)
    new = [target(one, *pair(one, 9)) for one in (1, 2, 3)]
    plan = MulticastPlanner().plan(wanted([source(0, *pair(0, 0))], new, 2, tp=2))
    assert arrows(plan) == [([0], [1, 2])]
    assert [shard.target_gpu for shard in plan.edges[0].shards] == [2, 4, 3, 5]


def test_unequal_sides_share_as_their_rates() -> None:
    """Three GPUs send to one of 25 GB/s and one of 12.5: each GPU sends and receives at its own rate."""
    old = [source(one) for one in range(3)]
    new = [target(3, port(3, domain=9, rate=2 * B)), target(4, port(4, domain=9))]
    (edge,) = MulticastPlanner().plan(wanted(old, new)).edges
    assert [(shard.source_gpu, shard.target_gpu) for shard in edge.shards] == [(0, 3), (1, 3), (2, 4)]
    assert [shard.rate_bytes_per_s for shard in edge.shards] == pytest.approx([B, B, B])


def test_chains_branch_where_one_source_feeds_a_group() -> None:
    new = [target(one, port(one, domain=9)) for one in (1, 2)] + [target(3), target(4)]
    plan = MulticastPlanner().plan(wanted([source(0)], new))
    assert chains_of(plan) == stops([0, 1, 3], [0, 2, 4])


def test_one_to_one_divides_a_source_and_never_chains() -> None:
    case = wanted([source(0), source(1, busy=True)], [target(one) for one in (2, 3, 4)])
    plan = OneToOnePlanner().plan(case)
    assert chains_of(plan) == stops([0, 2], [1, 3], [0, 4])
    assert [edge.rate_bytes_per_s for edge in plan.edges] == [B // 2, B, B // 2]
    assert interference(plan, case) == 1
    assert scale_time_s(plan, 16 * GB, GB) == pytest.approx(2.56)
    pruned = OneToOnePlanner(prune=True).plan(case)
    assert arrows(pruned) == [([0], [2]), ([0], [3]), ([0], [4])]


def test_a_slow_hop_sets_the_pace_of_all_behind_it() -> None:
    """Units of 1 of 4 GB over hops of 4, 1 and 2 GB/s: 0.25 + 1 + 0.5 s for the first, then 1 s each."""

    def hop(one: int, rate: int) -> Edge:
        return Edge((("replica", one),), (("replica", one + 1),), rate, (), "")

    plan = Plan((hop(0, 4 * GB), hop(1, GB), hop(2, 2 * GB)), "")
    assert scale_time_s(plan, 4 * GB, GB) == pytest.approx(1.75 + 3)
    assert scale_time_s(Plan((), ""), 4 * GB, GB) == 0


# ---- Fig. 11 a second time, plainly, and laws over drawn cases


@st.composite
def cases(draw: st.DrawFn) -> ScaleUp:
    """Up to 5 running sources, 2 host copies and 10 targets over 3 leaves, with domains and shared NICs."""
    tp = draw(st.sampled_from((1, 1, 2)))
    shared = draw(st.booleans())
    gpus_of_domain = draw(st.sampled_from((1, 2, 4))) * tp

    nics = 15 * tp
    rates = draw(st.lists(st.sampled_from((B, B, 2 * B, 1009)), min_size=nics, max_size=nics))
    serves = draw(st.lists(st.booleans(), min_size=nics, max_size=nics))

    def ports(one: int) -> tuple[Port, ...]:
        leaf = draw(st.integers(0, 2))
        gpus = range(one * tp, one * tp + tp)
        of = [gpu // 2 if shared else gpu for gpu in gpus]
        return tuple(
            Port(gpu, gpu // gpus_of_domain, leaf, nic, rates[nic], serves[nic]) for gpu, nic in zip(gpus, of)
        )

    running, copies, new = draw(st.integers(0, 5)), draw(st.integers(0, 2)), draw(st.integers(0, 10))
    sources = [source(one, *ports(one), busy=draw(st.booleans())) for one in range(running)]
    sources += [host(one, port(-1, nic=10_000 + one), busy=draw(st.booleans())) for one in range(copies)]
    targets = [target(one, *ports(one)) for one in range(running, running + new)]
    return wanted(sources, targets, draw(st.integers(0, 12)), tp)


def fig_11(case: ScaleUp, order: Order) -> list[tuple[list[int], list[int]]]:
    """The pseudo-code on plain lists, for NICs of one GPU each and sources none of which is busy."""

    def rate(item: Source | Target) -> int:
        return sum(one.bandwidth_bytes_per_s for one in item.ports)

    def leaf(item: Source | Target) -> int:
        return item.ports[0].leaf

    def name(item: Source | Target) -> int:
        return item.endpoint[1] if isinstance(item, Source) else item.replica

    def total(items: Sequence[Source | Target]) -> int:
        return sum(rate(item) for item in items)

    standing: list[tuple[int, Source | Target]] = [
        (leaf(item), item) for item in sorted(case.sources, key=name)
    ]
    of_leaf = {here: total([item for at, item in standing if at == here]) for here, _ in standing}
    standing.sort(key=lambda found: (-of_leaf[found[0]], found[0]))
    domains = {item.ports[0].domain for item in case.targets}
    groups = [
        sorted([t for t in case.targets if t.ports[0].domain == d], key=lambda t: (-rate(t), t.replica))
        for d in domains
    ]
    groups.sort(key=lambda group: (-total(group), group[0].replica))
    leaves = [here for here, _ in standing]
    groups.sort(key=lambda group: leaves.index(leaf(group[0])) if leaf(group[0]) in leaves else 99)
    plan, count = [], 0
    while groups and count < case.instances and standing:
        group = groups.pop(0)[: case.instances - count]
        here = leaf(group[0])
        inside = total([item for at, item in standing if at == here]) >= total(group)
        while inside and standing[0][0] != here:
            standing.append(standing.pop(0))
        givers: list[tuple[int, Source | Target]] = []
        for found in list(standing):
            if total([item for _, item in givers]) < total(group) and (found[0] == here or not inside):
                givers.append(found)
                standing.remove(found)
        plan.append(([name(item) for _, item in givers], [name(item) for item in group]))
        count += len(group)
        new: list[tuple[int, Source | Target]] = [(here, item) for item in group]
        standing = new + standing if order == "depth" else standing + new
    return plan


@given(cases(), st.sampled_from(("breadth", "depth")))
def test_the_planner_is_fig_11(case: ScaleUp, order: Order) -> None:
    def alone(one: Port) -> Port:
        return replace(one, nic=one.gpu, serves_prefill=False)

    running = [
        replace(one, ports=tuple(map(alone, one.ports)), out_busy=False)
        for one in case.sources
        if one.endpoint[0] == "replica"
    ]
    new = [replace(one, ports=tuple(map(alone, one.ports))) for one in case.targets]
    plain = replace(case, sources=tuple(running), targets=tuple(new))
    assert arrows(MulticastPlanner(order).plan(plain)) == fig_11(plain, order)


@given(cases(), st.sampled_from(PLANNERS))
def test_every_target_once_and_never_more_than_asked(case: ScaleUp, planner: Planner) -> None:
    replicas = planner.plan(case).replicas
    assert len(set(replicas)) == len(replicas)
    assert set(replicas) <= {one.replica for one in case.targets}
    assert len(replicas) == (min(case.instances, len(case.targets)) if case.sources else 0)


@given(cases(), st.sampled_from(PLANNERS))
def test_nobody_sends_what_it_has_not(case: ScaleUp, planner: Planner) -> None:
    plan = planner.plan(case)
    there = {one.endpoint for one in case.sources}
    for edge in plan.edges:
        assert edge.sources and there.issuperset(edge.sources)
        there |= set(edge.targets)
    heard = {one.endpoint for one in case.sources}
    for chain in chains_of(plan):
        assert chain[0] in heard and len(chain) > 1 and heard.isdisjoint(chain[1:])
        heard |= set(chain)
    assert sorted(n for _, n in heard - {one.endpoint for one in case.sources}) == sorted(plan.replicas)


@given(cases(), st.sampled_from(PRUNING))
def test_pruned_sources_send_only_if_there_is_no_other(case: ScaleUp, planner: Planner) -> None:
    used = {stop for edge in planner.plan(case).edges for stop in edge.sources}
    free = {one.endpoint for one in case.sources if not one.out_busy}
    busy = {one.endpoint for one in case.sources} - free
    if free:
        assert not used & busy
    if any(kind == "replica" for kind, _ in free):
        assert not any(kind == "host" for kind, _ in used)


@given(cases(), st.sampled_from(PLANNERS), st.integers(0, 2**32))
def test_the_order_of_the_input_means_nothing(case: ScaleUp, planner: Planner, seed: int) -> None:
    random = Random(seed)
    sources, targets = list(case.sources), list(case.targets)
    random.shuffle(sources)
    random.shuffle(targets)
    shuffled = replace(case, sources=tuple(sources), targets=tuple(targets))
    assert planner.plan(shuffled) == planner.plan(case)


@given(cases(), st.sampled_from(PLANNERS))
def test_shards_make_a_whole_and_keep_within_their_nics(case: ScaleUp, planner: Planner) -> None:
    seats = [one.ports for one in case.sources] + [one.ports for one in case.targets]
    ports = {one.gpu: one for found in seats for one in found}
    into: dict[int, float] = {}
    out: dict[int, float] = {}
    for edge in planner.plan(case).edges:
        assert sum(shard.share for shard in edge.shards) == pytest.approx(1)
        assert sum(shard.rate_bytes_per_s for shard in edge.shards) == pytest.approx(edge.rate_bytes_per_s)
        for shard in edge.shards:
            nic, gpu = ports[shard.target_gpu].nic, shard.source_gpu
            into[nic] = into.get(nic, 0) + shard.rate_bytes_per_s
            if gpu >= 0:
                out[ports[gpu].nic] = out.get(ports[gpu].nic, 0) + shard.rate_bytes_per_s
    for links, halved in ((out, 1), (into, 2)):
        for nic, rate in links.items():
            behind = [one for one in ports.values() if one.nic == nic]
            cap = max(one.bandwidth_bytes_per_s / (halved if one.serves_prefill else 1) for one in behind)
            assert rate <= cap * (1 + 1e-9)


@given(cases())
def test_interference_free_unless_nothing_else_is_left(case: ScaleUp) -> None:
    quiet = [
        replace(one, ports=tuple(replace(found, serves_prefill=False) for found in one.ports))
        for one in case.targets
    ]
    calm = replace(case, targets=tuple(quiet))
    if any(not one.out_busy for one in case.sources):
        assert interference(MulticastPlanner().plan(calm), calm) == 0
