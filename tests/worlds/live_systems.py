"""Live scaling played step by step while replicas and hosts are lost, and what its layers must keep."""

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree
from serving.protocols.live import LivePolicy, LiveScheduler
from serving.vocabulary.actions import Run
from tests.worlds.drawn_elastic import Drawn, draw_setting, step_world
from tests.worlds.elastic_world import LAYERS, MS, Setting, StepWorld


def made(random: Random) -> LivePolicy:
    """A policy by chance; the schedulers that need no solver more often than the one that does."""
    kinds: list[LiveScheduler] = [IlpFree(), IlpFree(), IlpFree(), BestEffort(), BestEffort(), Ilp(ahead=3)]
    return LiveScaling(
        random.choice(kinds),
        random.choice([0, 100]),
        tails_only=random.random() < 0.5,
        targets_per_partner=random.choice([1, 3]),
        embedding=random.choice(["target", "source"]),
    )


def layer_runs(world: StepWorld) -> list[Run]:
    return [one for one in world.actions if isinstance(one, Run) and one.layers is not None]


def assert_every_layer_runs_once(world: StepWorld) -> None:
    layers: dict[int, list[int]] = {}
    for one in layer_runs(world):
        assert one.layers is not None and not one.decode and one.max_steps == 1
        for request, start, tokens in one.chunks:
            assert (start, tokens) == (0, world.prompts[request])
            layers.setdefault(request, []).extend(range(*one.layers))
    assert all(found == list(range(LAYERS)) for found in layers.values())


def with_losses(case: Drawn, seed: int, data: st.DataObject) -> StepWorld:
    """The case played to its end while some replicas, and perhaps a host, are lost."""
    world = step_world(case, seed)
    times = st.integers(0, 3000)
    for at, replica in data.draw(st.lists(st.tuples(times, st.integers(0, 7)), max_size=4)):
        world.lose(at * MS, replica)
    for at, host in data.draw(st.lists(st.tuples(times, st.integers(0, 1)), max_size=1)):
        world.lose_host(at * MS, host)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    return world


def live_setting(random: Random) -> Setting:
    drawn = draw_setting(random)
    seed, count = random.getrandbits(32), random.choice([1, 1, 2])
    return replace(
        drawn,
        start={"both": count},
        bounds={"both": (random.choice([0, 1]), 6)},
        provision=random.choice(["multicast", "naive", "one_to_one", "host_or_ssd"]),
        copies="pool",
        prefill_tokens_per_s=20.0,
        live=lambda: made(Random(seed)),
        queue=None,  # live instances take from a common one
    )
