"""Live instances without a prefill partner, some of which are lost: decode instances end what was begun."""

from dataclasses import replace
from random import Random

import pytest

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.elastic_world import MS, Setting
from tests.worlds.wide_world import PATIENCE_NS, WideWorld, draw_requests, draw_setting


def setting_of(random: Random) -> Setting | None:
    """One model on eight GPUs, one prefill instance at most; None: its copies end, and nothing can load."""
    drawn = draw_setting(random)
    seed = random.getrandbits(30)
    if drawn.copies == "ttl":
        return None
    split = random.random() < 0.7
    start = (
        {"prefill": random.choice([0, 0, 1]), "decode": random.choice([1, 1, 2])}
        if split
        else {"both": random.choice([1, 1, 2])}
    )

    def live() -> LiveScaling:
        own = Random(seed)
        schedulers = [IlpFree(), IlpFree(), BestEffort(), Ilp(ahead=own.choice([2, 3]), solve_ns=0)]
        scheduler, embedding = own.choice(schedulers), own.choice(["source", "target"])
        return LiveScaling(scheduler, 0, tails_only=False, targets_per_partner=10, embedding=embedding)

    return replace(
        drawn,
        models={"a": 1},
        hosts=2,
        gpus_per_host=4,
        start=start,  # type: ignore[arg-type]
        bounds={role: (0 if role == "prefill" else least, 5) for role, least in start.items()},  # type: ignore[misc]
        whims=None,
        live=live,
        layers=random.choice([3, 4, 7]),
        kv_blocks=random.choice([8, 16]),
        max_num_seqs=random.choice([2, 4]),
        host_gb=None,
        prefill_tokens_per_s=20.0,
    )


@on_drawn_seeds((100_072, 100_262, 101_200))
def test_what_stopped_live_instances_have_begun_is_ended_by_those_that_decode(seed: int) -> None:
    """In the fixed worlds a batch once waited for ever for a decode instance that came later or was small."""
    random = Random(seed)
    setting = setting_of(random)
    if setting is None:
        pytest.skip("copies that end leave nothing to load from")
    requests = draw_requests(random, setting)
    world = WideWorld(setting, random, True)
    for request, output_tokens in requests:
        world.arrive(request, output_tokens)
    last_ns = requests[-1][0].arrival_ns
    for _ in range(random.choice([2, 5, 8])):
        world.lose(random.randint(0, last_ns // MS + 2000) * MS + random.choice([0, 1]), random.randint(0, 7))
    world.run(last_ns + PATIENCE_NS)
    world.assert_ended_well(requests)
