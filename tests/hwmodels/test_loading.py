"""Moving parameters: closed forms of chains, shards and broadcasts over a fabric of this file's own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.catalogue import llm_names, load_llm
from hwmodels.errors import HardwareError
from hwmodels.loading.chain import Chain
from hwmodels.loading.group_chain import Group, group_chain
from hwmodels.loading.plan import SOURCE, ChunkProgress, Hop, LoadStep
from hwmodels.loading.ranks import Ranks
from hwmodels.models.load_units import Unit, cut_into_chunks, model_units, shard, split
from tests.worlds.load_play import Play, broadcast, played, tensor_parallel

GBPS = 1e9 / 8


def layers_of(total_bytes: int, count: int) -> list[Unit]:
    return [Unit(f"layer {layer}", layer, split(total_bytes, count, layer)) for layer in range(count)]


def path(count: int) -> list[Hop]:
    return [Hop((link,)) for link in range(count)]


# Units


def test_the_units_of_llama3_8b_are_those_that_are_published() -> None:
    units = model_units(load_llm("llama3_8b"))
    assert [unit.name for unit in units] == ["embedding", *(f"layer {n}" for n in range(32)), "head"]
    assert [unit.layer for unit in units] == [None, *range(32), None]
    assert units[0].size_bytes == pytest.approx(1.05e9, rel=0.002)
    assert units[1].size_bytes == pytest.approx(0.436e9, rel=0.001)
    chunks = cut_into_chunks(units)
    assert len(chunks) == 3 + 32 + 3
    assert max(chunk.size_bytes for chunk in chunks) == units[1].size_bytes
    assert [chunk.last for chunk in chunks[:4]] == [False, False, True, True]


@pytest.mark.parametrize("name", llm_names())
def test_units_add_up_to_the_model(name: str) -> None:
    shape = load_llm(name)
    units = model_units(shape)
    assert sum(unit.size_bytes for unit in units) == shape.weight_bytes
    assert (units[-1].name == "head") == (not shape.tied_embeddings)
    for tp in (one for one in (2, 3, 4) if shape.heads % one == 0 and shape.kv_heads % one == 0):
        ranks = [model_units(shape, tp, rank) for rank in range(tp)]
        assert sum(unit.size_bytes for rank in ranks for unit in rank) == shape.weight_bytes
    for chunk_bytes in (None, 10_000_019):
        chunks = cut_into_chunks(units, chunk_bytes)
        assert sum(chunk.size_bytes for chunk in chunks) == shape.weight_bytes
        assert sum(chunk.last for chunk in chunks) == len(units)
        assert chunk_bytes is None or max(chunk.size_bytes for chunk in chunks) <= chunk_bytes


def test_a_stretch_of_layers_has_the_ends_that_belong_to_it() -> None:
    whole = model_units(load_llm("llama3_8b"))
    assert model_units(load_llm("llama3_8b"), layers=range(16)) == whole[:17]
    assert model_units(load_llm("llama3_8b"), layers=range(16, 32)) == whole[17:]
    assert model_units(load_llm("llama3_8b"), layers=range(3, 5)) == whole[4:6]


def test_the_last_stage_of_a_model_with_tied_embeddings_has_its_own_copy() -> None:
    shape = load_llm("opt_13b")
    table_bytes = shape.embedding_parameters * 2
    stages = [model_units(shape, layers=range(20)), model_units(shape, layers=range(20, 40))]
    assert stages[1][-1].name == "head"
    assert sum(unit.size_bytes for stage in stages for unit in stage) == shape.weight_bytes + table_bytes


def test_what_units_refuse() -> None:
    shape = load_llm("llama3_8b")
    for layers in (range(0), range(30, 33), range(0, 8, 2)):
        with pytest.raises(HardwareError, match="write layers within 0 to 32"):
            model_units(shape, layers=layers)
    with pytest.raises(HardwareError, match="tp=3 does not divide"):
        model_units(shape, tp=3)
    with pytest.raises(HardwareError, match="write a part from 0 to 1"):
        shard(model_units(shape), 2, 2)
    with pytest.raises(HardwareError, match="chunk_bytes=0 is too small"):
        cut_into_chunks(model_units(shape), 0)


# Closed forms


def test_without_chunks_the_embedding_holds_the_chain_up() -> None:
    units = model_units(load_llm("llama3_8b"))
    largest = max(unit.size_bytes for unit in units)
    total = sum(unit.size_bytes for unit in units)
    play = played(Chain(units, path(3), chunk_bytes=largest), dict.fromkeys(range(3), 1e9))
    assert play.now_s == pytest.approx((total + 2 * largest) / 1e9, rel=1e-12)


def test_the_first_layer_is_there_after_the_embedding_and_itself() -> None:
    units = model_units(load_llm("llama3_8b"))
    play = played(Chain(units, path(1)), {0: 1e9})
    assert play.arrivals[0, 1] == pytest.approx((units[0].size_bytes + units[1].size_bytes) / 1e9)


def test_a_hop_pays_its_latency_whenever_it_has_been_idle() -> None:
    hops = [Hop((0,), latency_s=0.25), Hop((1,), latency_s=0.5)]
    assert played(Chain(layers_of(8 * 10**9, 8), hops[:1]), {0: 1e9}).now_s == pytest.approx(8 + 0.25)
    # As fast as the one before it a hop is never idle again, twice as fast it is before every chunk.
    even = played(Chain(layers_of(8 * 10**9, 8), hops), {0: 1e9, 1: 1e9})
    assert even.now_s == pytest.approx(8 + 0.25 + 1 + 0.5)
    fast = played(Chain(layers_of(8 * 10**9, 8), hops), {0: 1e9, 1: 4e9})
    assert fast.now_s == pytest.approx(8 + 0.25 + 0.25 + 0.5)
    assert fast.arrivals[1, 3] == pytest.approx(4 + 0.25 + 0.25 + 0.5)


def test_together_a_last_hop_sends_what_there_is_as_one_flow_and_parts_when_asked() -> None:
    chain = Chain(layers_of(8 * 10**9, 8), [Hop((0,), latency_s=0.25)])
    (send,) = chain.begin(6, together=True)
    assert (send.chunk, send.flow.size_bytes, send.flow.latency_s) == (0, 6e9, 0.25)
    assert chain.part() == [send] and chain.complete_chunks(0) == 0
    step = chain.parted(0, 2.5e9)
    assert [arrival.unit for arrival in step.arrivals] == [0, 1] and chain.complete_chunks(0) == 2
    (rest,) = step.sends
    assert (rest.chunk, rest.flow.size_bytes, rest.flow.latency_s) == (2, 0.5e9, 0.0)
    assert chain.finished(0, 2).sends[0].flow.size_bytes == 1e9
    assert chain.part() == []


@pytest.mark.parametrize(
    ("moved_bytes", "units", "left_bytes"), [(0.0, 0, 1e9), (3e9, 3, 1e9), (8e9, 8, None)]
)
def test_a_flow_that_parts_between_two_chunks(
    moved_bytes: float, units: int, left_bytes: float | None
) -> None:
    chain = Chain(layers_of(8 * 10**9, 8), [Hop((0,), latency_s=0.25)])
    chain.begin(together=True)
    chain.part()
    step = chain.parted(0, moved_bytes)
    assert len(step.arrivals) == units
    assert [send.flow.size_bytes for send in step.sends] == ([] if left_bytes is None else [left_bytes])
    # Bytes that had not begun to move begin with the latency.
    assert [send.flow.latency_s for send in step.sends] == [0.0 if units else 0.25] * len(step.sends)


def test_together_changes_no_time_of_the_end_and_hops_that_forward_go_by_chunks() -> None:
    for count in (1, 2, 3):
        hops = [Hop((hop,), latency_s=0.25) for hop in range(count)]
        rates = {0: 1e9, 1: 3e9, 2: 2e9}
        apart, joined = (Chain(layers_of(8 * 10**9, 8), hops) for _ in range(2))
        flows = Play(rates)
        flows.add(joined.begin(together=True))
        assert flows.run(joined) == pytest.approx(played(apart, rates).now_s)
        assert joined.done and flows.moved_bytes == 8e9 * count


def test_weight_and_cap_reach_the_fabric() -> None:
    units = layers_of(10**9, 1)
    chains = [Chain(units, [Hop((0,), weight=3.0)]), Chain(units, [Hop((0,), cap_bytes_per_s=1e8)], rank=1)]
    heavy, capped = (chain.begin()[0].flow for chain in chains)
    assert (heavy.weight, capped.cap_bytes_per_s) == (3.0, 1e8)
    ranks = Ranks([Chain(units, [Hop((0,), weight=3.0)]), Chain(units, [Hop((0,), weight=1.0)], rank=1)])
    play = played(ranks, {0: 4e9})
    assert play.arrivals == {(0, 0): pytest.approx(0.5)}


def test_groups_in_a_chain_do_not_wait_for_the_gather() -> None:
    units, channels = layers_of(16 * 10**9, 32), 2
    groups = [
        Group(
            tuple(Hop((10 * index + channel,)) for channel in range(channels)),
            tuple(Hop((10 * index + 5 + channel,)) for channel in range(channels)),
        )
        for index in range(3)
    ]
    capacities = {10 * index + channel: 1e9 for index in range(3) for channel in range(channels)}
    capacities |= {10 * index + 5 + channel: 1e10 for index in range(3) for channel in range(channels)}
    play = played(group_chain(units, groups), capacities)
    for index in range(3):
        expected = 8.0 + index * 0.25 + 0.025
        assert play.arrivals[index, 31] == pytest.approx(expected, rel=1e-9)


def test_a_broadcast_follows_the_load_it_waits_for() -> None:
    units = layers_of(16 * 10**9, 32)
    chain = broadcast(units, Hop((2, 3), after=SOURCE), before=path(2))
    play = played(chain, {0: 1e9, 1: 4e9, 2: 1e11, 3: 1e11})
    assert play.now_s == pytest.approx(16.0 + 0.125 + 0.005)
    assert len([hop for hop, _ in play.arrivals if hop == 2]) == 32


def test_a_hop_after_several_waits_for_all_of_them() -> None:
    """Channels of a half each, of two rates; what they bring together goes on chunk by chunk."""
    units = layers_of(8 * 10**9, 8)
    channels = [Hop((channel,), after=SOURCE, share=0.5) for channel in range(2)]
    chain = Chain(units, [*channels, Hop((2,), after=(0, 1))], ends=[(0, 1), (2,)])
    play = played(chain, {0: 1e9, 1: 0.5e9, 2: 4e9})
    assert sorted(play.arrivals) == [(target, unit) for target in range(2) for unit in range(8)]
    for unit in range(8):
        assert play.arrivals[0, unit] == pytest.approx(1.0 + unit)
        assert play.arrivals[1, unit] == pytest.approx(1.25 + unit)
    assert [chain.complete_chunks(target) for target in range(2)] == [8, 8]
    assert play.moved_bytes == pytest.approx(16e9)


def test_a_source_that_is_fed_is_waited_for() -> None:
    chain = Chain(layers_of(10, 4), path(2))
    assert chain.begin(0) == [] and chain.feed(0) == []
    (send,) = chain.feed(2)
    assert (send.hop, send.chunk) == (0, 0) and chain.feed(3) == []
    for chunk in range(3):
        sends = [send for send in chain.finished(0, chunk).sends if send.hop == 0]
        assert [send.chunk for send in sends] == ([chunk + 1] if chunk < 2 else [])
    assert [send.chunk for send in chain.feed(4)] == [3]
    with pytest.raises(AssertionError, match="does not go away"):
        chain.feed(3)


# Refusals


def test_what_plans_refuse() -> None:
    units = layers_of(10, 1)
    for one, hops in ((units, []), ([], path(1))):
        with pytest.raises(HardwareError, match="at least one of each"):
            Chain(one, hops)
    for after in (0, (0,), (-1,)):
        with pytest.raises(HardwareError, match="write an earlier one, or -1"):
            Chain(units, [Hop((0,), after=after)])
    with pytest.raises(HardwareError, match="write one for each"):
        Chain(units, path(2), progress=[ChunkProgress()])
    for progress in (ChunkProgress(2), ChunkProgress(1, 1.0), ChunkProgress(0, 11.0), ChunkProgress(-1)):
        with pytest.raises(HardwareError, match="with the same units and chunk_bytes"):
            Chain(units, path(1), progress=[progress])
    with pytest.raises(HardwareError, match="one chain for each shard"):
        Ranks([])
    with pytest.raises(HardwareError, match="give all ranks the same"):
        Ranks([Chain(units, path(1)), Chain(layers_of(10, 2), path(1), rank=1)])
    with pytest.raises(HardwareError, match=r"group 0 has 2 channels and 0 gathers"):
        group_chain(units, [Group(tuple(path(2)))])
    with pytest.raises(HardwareError, match="group 1 has 1 channels"):
        group_chain(units, [Group(tuple(path(2)), tuple(path(2))), Group(tuple(path(1)))])


def test_a_flow_that_was_not_sent_cannot_end() -> None:
    chain = Chain(layers_of(10, 2), path(2))
    chain.begin()
    for hop, chunk in ((0, 1), (1, 0)):
        with pytest.raises(AssertionError):
            chain.finished(hop, chunk)
    with pytest.raises(AssertionError):
        chain.begin()


# Stops


def test_dropping_the_tail_leaves_the_rest_alone() -> None:
    units = layers_of(8 * 10**9, 8)
    chain = Chain(units, path(3))
    play = Play(dict.fromkeys(range(3), 1e9))
    play.add(chain.begin())
    play.run(chain, until_flows=6)
    stopped = chain.drop_tail(1)
    assert stopped.lacking == ()
    assert [(send.hop, send.chunk) for send in stopped.aborts] == [
        (hop, chain.progress(hop).chunks) for hop in (1, 2)
    ]
    play.abort(stopped.aborts)
    assert not chain.done
    assert play.run(chain) == pytest.approx(8.0)
    assert chain.done and chain.missing(0).size_bytes == 0


def test_after_a_cut_the_survivors_resume_where_they_were() -> None:
    units = layers_of(8 * 10**9, 8)
    chain = Chain(units, path(4))
    play = Play({0: 1e9, 1: 1e9, 2: 0.5e9, 3: 1e9})
    play.add(chain.begin())
    play.run(chain, until_flows=9)
    before = [chain.progress(hop).chunks for hop in range(4)]
    stopped = chain.cut(1)
    assert [missing.hop for missing in stopped.lacking] == [2, 3]
    assert [len(missing.units) for missing in stopped.lacking] == [8 - before[2], 8 - before[3]]
    for (_, hop), size_bytes in play.abort(stopped.aborts).items():
        chain.delivered(hop, size_bytes)
    lacking = [chain.missing(hop).size_bytes for hop in (2, 3)]
    again = Chain(units, [Hop((2,)), Hop((3,))], progress=[chain.progress(hop) for hop in (2, 3)])
    resumed = Play({2: 1e9, 3: 1e9})
    resumed.add(again.begin())
    resumed.run(again)
    assert again.done
    assert resumed.moved_bytes == pytest.approx(sum(lacking))
    play.run(chain)
    assert chain.done and chain.missing(0).size_bytes == 0


def test_what_ends_after_the_stop_has_no_effect() -> None:
    chain = Chain(layers_of(10, 2), path(1))
    chain.begin()
    chain.drop_tail(0)
    assert chain.finished(0, 0) == LoadStep((), ())
    assert chain.missing(0).size_bytes == 10
    assert chain.drop_tail(0).aborts == ()
    chain.delivered(0, 3.0)
    assert chain.missing(0).size_bytes == 7
    with pytest.raises(AssertionError):
        chain.delivered(0, 1.0)


def test_a_cut_names_no_target_that_was_dropped_before() -> None:
    chain = Chain(layers_of(10, 2), path(3))
    chain.begin()
    chain.drop_tail(2)
    assert [missing.hop for missing in chain.cut(0).lacking] == [1]


def test_a_cut_instance_is_cut_on_all_ranks() -> None:
    shape = load_llm("llama3_8b")
    ranks = tensor_parallel(shape, [path(3), [Hop((link + 3,)) for link in range(3)]])
    play = Play({link: 1e9 * (1 + link % 2) for link in range(6)})
    play.add(ranks.begin())
    play.run(ranks, until_flows=30)
    stopped = ranks.cut(1)
    assert {send.rank for send in stopped.aborts} == {0, 1}
    assert stopped.lacking == (ranks.missing(2),)
    for (rank, hop), size_bytes in play.abort(stopped.aborts).items():
        ranks.delivered(rank, hop, size_bytes)
    play.run(ranks)
    assert ranks.done and ranks.whole_units(0) == 34
    assert len(ranks.missing(2).units) == 34 - ranks.whole_units(2)
    kept = [[progress] for progress in ranks.progress(2)]
    again = tensor_parallel(shape, [[Hop((rank,))] for rank in range(2)], progress=kept)
    second = played(again, {0: 1e9, 1: 1e9})
    assert second.moved_bytes == pytest.approx(ranks.missing(2).size_bytes)
    assert len(second.arrivals) == len(ranks.missing(2).units)


# Properties


trees = st.lists(st.integers(-1, 5), min_size=1, max_size=6).map(
    lambda afters: [Hop((index,), after=min(after, index - 1)) for index, after in enumerate(afters)]
)
sizes = st.lists(st.integers(0, 2000), min_size=1, max_size=8)


@settings(max_examples=40)
@given(hops=trees, sizes=sizes, chunk=st.integers(1, 900), data=st.data())
def test_everything_arrives_once_in_order_and_no_sooner_than_its_source(
    hops: list[Hop], sizes: list[int], chunk: int, data: st.DataObject
) -> None:
    """Whatever order flows end in: the state machine must not depend on rates."""
    units = [Unit(f"layer {index}", index, size) for index, size in enumerate(sizes)]
    chain = Chain(units, hops, chunk_bytes=chunk, sequential=data.draw(st.booleans()))
    open_sends, seen = chain.begin(), [0] * len(hops)
    moved = [0.0] * len(hops)
    dead = data.draw(st.none() | st.integers(0, len(hops) - 1))
    while open_sends:
        if dead is not None and data.draw(st.integers(0, 9)) == 0:
            aborts = chain.cut(dead).aborts
            for send in aborts:
                share = data.draw(st.floats(0, 1)) * send.flow.size_bytes
                chain.delivered(send.hop, share)
                moved[send.hop] += share
            open_sends = [
                send
                for send in open_sends
                if (send.hop, send.chunk) not in {(a.hop, a.chunk) for a in aborts}
            ]
            dead = None
            continue
        send = open_sends.pop(data.draw(st.integers(0, len(open_sends) - 1)))
        step = chain.finished(send.hop, send.chunk)
        moved[send.hop] += send.flow.size_bytes
        open_sends += step.sends
        for arrival in step.arrivals:
            assert arrival.unit == seen[arrival.hop]
            seen[arrival.hop] += 1
            after = hops[arrival.hop].after
            assert after == SOURCE or seen[after] > arrival.unit
    assert chain.done
    for hop in range(len(hops)):
        assert moved[hop] + chain.missing(hop).size_bytes == pytest.approx(sum(sizes))
        assert len(chain.missing(hop).units) == len(units) - seen[hop] == len(units) - chain.whole_units(hop)
