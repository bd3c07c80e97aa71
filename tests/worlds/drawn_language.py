"""Small worlds of language models in stages, each drawn from a seed."""

from random import Random

from serving.vocabulary.units import FRACTION_BITS
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.language_world import LanguageCase
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.toy_rows import ToyRows

ONE = 1 << FRACTION_BITS


def drawn_language(seed: int, losses: bool) -> tuple[LanguageCase, FaultPlan | None]:
    """1 to 4 uneven stages on 8 GPUs, up to 25 requests that all replicas hold, up to 3 losses."""
    random = Random(f"language {seed}")
    stages, knot, skew = random.randint(1, 4), random.choice((None, 200)), random.choice((0, 0, 30))
    rows = tuple(
        ToyRows(
            random.randint(1, 40 * ONE), random.randint(0, 5 * ONE), random.randint(0, 3) * ONE // 7,
            random.randint(1, 40 * ONE), random.randint(0, 2 * ONE), 0, knot,
            random.randint(1, 40 * ONE), random.randint(0, 3) * ONE // 7, skew,
        )
        for _ in range(stages)
    )  # fmt: skip
    costs = ToyStages(rows, random.choice((0, ONE, 3 * ONE + 5)), random.choice((0, 7)))
    requests = [
        (random.randint(0, 30_000), random.randint(1, 40), random.randint(1, 120), random.randint(1, 120))
        for _ in range(random.randint(3, 25))
    ]
    case = LanguageCase(
        requests,
        costs,
        [random.randint(1, 2) for _ in range(stages)],
        [random.randint(60, 200) for _ in range(stages)],
        random.randint(1, 4),
        random.choice((5, 64)),
        layer_bytes=random.choice((500, 3000)),
    )
    if not losses:
        return case, None
    kinds = ("replica", "replica", "host", "link", "ssd")
    found = [
        Fault(random.randint(0, 30_000), random.choice(kinds), share=random.random())
        for _ in range(random.randint(1, 3))
    ]
    gpus = [one.gpus for one in case.placed()]
    return case, FaultPlan(tuple(sorted(found, key=lambda one: one.at_ns)), gpus, ideal(case.cluster))
