"""Busy worlds on load reports of every kind, drawn from a seed: Llumnix decides in them."""

from random import Random
from typing import get_args

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import ReportsAt
from tests.worlds.drawn_migrations import NS, STEP_NS
from tests.worlds.migrating import Played, Setting, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

KINDS: tuple[ReportsAt, ...] = get_args(ReportsAt)


def check_reports(seed: int) -> Played:
    """Coalesced as step by step: instances tell the same, so the same is decided at the same times."""
    random = Random(f"reports {seed}")
    setting, rule = _drawn(random), random.choice(("shipped", "paper"))
    threshold, rounds = random.choice((1.0, 3.0, 6.0, 10.0)), random.randint(1, 4)
    played, exact = [
        play(setting, coalesce, None, Llumnix(rule, threshold, rounds=rounds), dispatcher=Freeness(rule))
        for coalesce in (True, False)
    ]
    assert played.records == exact.records, f"seed {seed}"
    assert played.recorder.done == exact.recorder.done, f"seed {seed}"
    return played


def _drawn(random: Random) -> Setting:
    """2 to 5 instances and 10 to 40 requests that come while others decode; memory is short."""
    replicas, now_ns, requests = random.choice((2, 3, 4, 5)), 0, []
    for _ in range(random.randint(10, 40)):
        requests.append(
            (now_ns, random.randint(1, 40), random.randint(1, 200), random.choice((60, 120, 200)))
        )
        now_ns += random.choice((0, STEP_NS, random.randint(0, 20), random.randint(0, 80)))
    rows = ToyRows(5 * NS, NS // 3, NS // random.choice((20, 50)), 6 * NS, NS // 5)
    block, watermark, seats = random.choice((1, 4, 16)), random.randint(0, 2), random.choice((4, 8, 16))
    longest = max(-(-(prompt + most) // block) for _, prompt, _, most in requests)
    blocks = watermark + longest + random.choice((0, 2, longest, 2 * longest))
    case = Case(
        "prefill_first", replicas, block, blocks, watermark, seats, 64, "round_robin", tuple(requests), rows,
        decode_spare_block=random.random() < 0.5,
    )  # fmt: skip
    at = random.choice(KINDS)
    stages, control_ns = (random.choice((1, 2, 16)), random.randint(2, 4)), random.choice((0, 3, 40))
    token_ns, period_ns = random.choice((0.1, 1.0, 6.0)), STEP_NS * random.choice((1, 3, 5, 9))
    return Setting(case, 0, "live", *stages, control_ns, token_ns, period_ns, freeness=True, reports_at=at)
