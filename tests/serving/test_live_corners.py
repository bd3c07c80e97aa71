"""Corners of live scaling that a review found: each of these once went wrong."""

from dataclasses import replace
from random import Random

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import IlpFree
from tests.worlds.drawn_elastic import Drawn
from tests.worlds.drawn_live import LiveCase, live_case, simulate
from tests.worlds.elastic_world import MS
from tests.worlds.pair_ticks import NEW, OLD, Ticks
from tests.worlds.scripted_scaling import scripted
from tests.worlds.tall_live import Seen, Spied, asked, slow, tall


def test_a_planned_batch_whose_load_stops_is_ended_by_an_old_one() -> None:
    ticks = Ticks(4, [1], 5)
    ticks.pair.plan([(ticks.queue.pop(0),)], [4])
    ticks.pair.layers_loaded(1), ticks.work(), ticks.due.clear(), ticks.ended(NEW)
    ticks.pair.stopped = True
    assert ticks.pair.offer() is ticks.pair.batches[0]


def test_a_whole_one_does_not_keep_batches_that_idle_old_ones_could_run() -> None:
    ticks = Ticks(4, [1, 1], 5)
    ticks.pair.plan([(ticks.queue.pop(0),), (ticks.queue.pop(0),)], [1, 1])
    ticks.pair.layers_loaded(4), ticks.work()
    assert ticks.pair.offer() is ticks.pair.batches[1]


def test_one_that_cannot_embed_does_not_take_the_whole_queue() -> None:
    ticks = Ticks(4, [1] * 7, 5)
    ticks.pair.embeds = False
    ticks.pair.layers_loaded(1), ticks.work()  # embedded prompts are on their way
    assert len(ticks.pair.batches) <= 2


def test_a_load_of_unknown_length_is_not_planned_as_one_of_no_time() -> None:
    spied = Spied(ahead=6, solve_ns=0)
    case = tall(1, lambda: LiveScaling(spied, 0))
    setting = replace(case.drawn.setting, provision="host_or_ssd", kv_blocks=64)
    Seen.of(asked(LiveCase(Drawn(setting, ()), case.shape), 160, 1))
    assert all(view.layer_load_ns > MS for view, _ in spied.answers)


def test_a_helper_is_asked_again_when_a_finish_frees_its_room() -> None:
    seen = Seen.of(asked(tall(0, slow(IlpFree()), load_layers=20), 3, 15))
    freed_ns = min(finish for _, _, _, finish, _ in seen.ran.done.values())
    pulls = [now for now, replica, _, ids in seen.passes() if replica == 0 and ids == [2]]
    assert pulls[0] - freed_ns < 5 * MS


def test_a_batch_whose_embedder_is_lost_is_embedded_again() -> None:
    ticks = Ticks(4, [1], 5)
    ticks.pair.embeds = False
    ticks.pair.layers_loaded(1), ticks.work()
    ticks.pair.source_lost(OLD), ticks.work()
    assert ticks.pair.batches[0].where == "embedding"


def test_no_load_of_minus_one_instances() -> None:
    simulate(live_case(Random(2100)))


def test_targets_per_partner_holds_over_scale_ups() -> None:
    one_more = (("load", "prefill", 1, ()),)
    assert scripted(one_more, one_more, targets_per_partner=2)[1] == [("prefill", True)]


def test_decode_helpers_have_one_pair_over_scale_ups_too() -> None:
    one_more = (("load", "prefill", 1, ()),)
    # The first load answers the first request, before the first look.
    assert scripted(one_more, one_more, one_more, prefill=0)[0] == [("prefill", False)]


def test_what_a_decode_helper_pulled_counts_in_its_room() -> None:
    case = live_case(Random(15080725620))
    stepped = simulate(case, coalesce=False)
    assert not any('"preempt"' in text for text in stepped[2].lines)
    assert simulate(case)[0].done == stepped[0].done
