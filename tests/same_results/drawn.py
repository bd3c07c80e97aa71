"""Drawn worlds whose results are compared: engines alone, elastic ones, live ones, and wide ones with losses.

A configuration is many small worlds; their facts and decisions are strung together.
"""

from collections.abc import Callable
from dataclasses import asdict
from itertools import accumulate
from random import Random
from typing import Any, Final

from serving.record.journal import action_text
from tests.same_results.outputs import Outputs, hash_of, journal_outputs
from tests.worlds import drawn_elastic, drawn_live, live_systems, wide_world, world
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import FEW_NS, GPU_NS, NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected


def _rows(random: Random, step_ns: int) -> ToyRows:
    """Steps of about this long, of odd fractions."""

    def cost(most_ns: int) -> int:
        return random.randint(0, most_ns * NS) | 1

    return ToyRows(
        intercept=cost(step_ns), per_sequence=cost(step_ns // 8), slope=cost(step_ns // 50),
        mixed_intercept=cost(2 * step_ns), per_token=cost(step_ns // 10),
        knot_context=random.choice([None, random.randint(1, 150)]), knot_intercept=cost(step_ns),
        knot_slope=cost(step_ns // 20), skew_percent=random.choice([0, 0, 7, 40]),
    )  # fmt: skip


def engine_case(random: Random) -> Case:
    """Up to twelve requests on one or two replicas whose memory is for few of them."""
    step_ns = random.choice([FEW_NS, GPU_NS])
    count = random.randint(3, 12)
    arrivals_ns = accumulate(random.choice([0, 0, random.randint(0, 3 * step_ns)]) for _ in range(count))
    requests = tuple(
        (arrival_ns, random.randint(1, 12), random.randint(1, 60), random.randint(6, 40))
        for arrival_ns in arrivals_ns
    )
    block_tokens, watermark = random.choice([1, 2, 4, 16]), random.randint(0, 2)
    largest = max(-(-(prompt + cap) // block_tokens) for _, prompt, _, cap in requests)
    batcher, seats = random.choice(["chunked", "prefill_first"]), random.choice([2, 4, 8])
    return Case(
        batcher=batcher, replicas=random.choice([1, 1, 2]), block_tokens=block_tokens,
        total_blocks=watermark + largest + random.randint(0, 3), watermark_blocks=watermark,
        max_num_seqs=seats, max_num_batched_tokens=random.randint(seats, seats + 24),
        dispatch=random.choice(["round_robin", "least_outstanding"]), requests=requests,
        rows=_rows(random, step_ns), reserve_full_prompt=batcher == "chunked" and random.random() < 0.5,
        decode_spare_block=batcher != "chunked" and random.random() < 0.5,
        prefix_caching=random.random() < 0.5, asynchronous=random.random() < 0.5,
    )  # fmt: skip


def _told(played: list[tuple[Collected, Any, Checked]]) -> Outputs:
    """Of runs in virtual time."""
    recorders = [recorder for recorder, _, _ in played]
    return {
        "done": hash_of([sorted(one.done.items()) for one in recorders]),
        "refusals": hash_of([sorted(one.refusals.items()) for one in recorders]),
        "gaps": hash_of([one.all_gaps for one in recorders]),
        "busy_ns": hash_of([sorted(one.busy_ns.items()) for one in recorders]),
        **journal_outputs([line for _, _, checked in played for line in checked.lines]),
    }


def _engines() -> Outputs:
    cases = [engine_case(Random(seed)) for seed in range(150)]
    return _told([world.simulate(case, coalesce=bool(number % 3)) for number, case in enumerate(cases)])


def _elastic() -> Outputs:
    played = []
    for seed in range(60):
        random = Random(seed)
        setting = drawn_elastic.draw_setting(random)
        requests = drawn_elastic.draw_requests(random, setting)
        case = drawn_elastic.on_links(drawn_elastic.Drawn(setting, requests))
        played.append(drawn_elastic.simulate(case, coalesce=bool(seed % 3)))
    return _told(played)


def _live() -> Outputs:
    cases = [drawn_live.live_case(Random(seed)) for seed in range(60)]
    played = [drawn_live.simulate(case, bool(number % 3)) for number, case in enumerate(cases)]
    counts = [asdict(one) for _, _, checked in played for one in drawn_live.counts_of(checked)]
    plain = [
        {key: sorted(value) if isinstance(value, set) else value for key, value in one.items()}
        for one in counts
    ]
    return _told(played) | {"live counts": hash_of(plain)}


def _live_both() -> Outputs:
    played = []
    for seed in range(60):
        random = Random(seed)
        setting = live_systems.live_setting(random)
        requests = drawn_elastic.draw_requests(random, setting)
        case = drawn_elastic.on_links(drawn_elastic.Drawn(setting, requests))
        played.append(drawn_elastic.simulate(case, coalesce=bool(seed % 3)))
    return _told(played)


def _wide(first_seed: int, loses: bool = False) -> Outputs:
    played = [wide_world.played(seed, loses) for seed in range(first_seed, first_seed + 20)]
    # These worlds keep no journal: an event that is none stands for each of theirs.
    lines = [f'[0,["told"],[{action_text(action)}]]' for one in played for action in one.actions]
    return journal_outputs(lines) | {
        "finished": hash_of([one.finished for one in played]),
        "ended": hash_of([sorted(one.ended.items()) for one in played]),
        "ended_ns": hash_of([one.now_ns for one in played]),
    }


DRAWN: Final[dict[str, Callable[[], Outputs]]] = {
    "drawn engines": _engines,
    "drawn elastic worlds on links": _elastic,
    "drawn live worlds on links, split": _live,
    "drawn live worlds on links, both roles in one": _live_both,
    "drawn wide worlds 0 to 19": lambda: _wide(0),
    "drawn wide worlds 20 to 39": lambda: _wide(20),
    "drawn wide worlds 40 to 59": lambda: _wide(40),
    "drawn wide worlds with losses 0 to 19": lambda: _wide(0, True),
    "drawn wide worlds with losses 20 to 39": lambda: _wide(20, True),
    "drawn wide worlds with losses 40 to 59": lambda: _wide(40, True),
}
