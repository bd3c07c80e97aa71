"""How a model in stages is cut and served, if ``system/stages`` puts it in stages."""

from dataclasses import dataclass
from typing import Final

from serving.vocabulary.errors import UserError

CUTS: Final = ("published", "layers", "bytes", "time")
QUEUES: Final = ("stage", "replica")
TIMES: Final = ("lognormal", "gamma", "exponential")
RECUTS: Final = ("none", "time", "cv")
MOST_STAGES: Final = 1024


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """``cut`` into ``stages`` (None: as many as published): evenly by one of ``CUTS``.

    ``replicas``: of each stage at the start, one number for all or one each with + between. ``queue``: one
    per stage, or per replica. ``batch``: requests of a pass at most; each but the longest takes the share
    ``batch_cost`` of its time. ``times``: of passes, drawn with ``times_cv`` around the stage's own (0: not
    drawn). ``cpu_cores``: of a replica; ``cpu_share``: what 2 cores take of a pass before its GPU.

    If ``system/stages`` scales, it is called once per ``period_s`` with the last ``window_s``. Each stage
    keeps ``min_replicas``, a model has ``max_replicas`` at most (None: one for each GPU).
    ``live``: replicas run their loaded layers while they load. ``moves``: KV moves from replicas about to
    stop, and to those that have loaded. ``recut``: a language model is recut while it runs, by the measured
    ``time`` of stages, or by the ``cv`` of arrivals into the fewer or the more of ``recut_stages``.
    """

    cut: str
    stages: int | None
    replicas: str
    queue: str
    batch: int
    batch_cost: float
    times: str
    times_cv: float
    cpu_cores: int
    cpu_share: float
    period_s: float
    window_s: float
    min_replicas: int
    max_replicas: int | None
    live: bool
    moves: bool
    recut: str
    recut_stages: str

    def few_and_many(self) -> tuple[int, int]:
        """Return the two stage counts of ``recut_stages``. Raises UserError."""
        words = self.recut_stages.split("+")
        if len(words) == 2 and all(word.isascii() and word.isdecimal() for word in words):
            few, many = [int(word[:5]) for word in words]
            if 0 < few < many:
                return few, many
        raise UserError(
            f"pipeline.recut_stages={self.recut_stages} is no pair of stages: write fewer+more, such as 2+8"
        )

    def counts(self, stages: int) -> tuple[int, ...]:
        """Return the replicas of each stage. Raises UserError."""
        words = [word.strip() for word in self.replicas.strip("[]").replace(",", "+").split("+")]
        good = all(word.isascii() and word.isdecimal() and 0 < int(word[:9]) <= 99_999 for word in words)
        if not good or len(words) not in (1, stages):
            raise UserError(
                f"pipeline.replicas={self.replicas} does not fit {stages} stages: write one number, or "
                f"{stages} with + between, each at least 1"
            )
        return tuple(int(word) for word in words) * (stages if len(words) == 1 else 1)


# The paper measures 33 % less time with 4 cores than with 2 (Fig. 3b): 1 - 0.66 / 2.
PLAIN: Final = PipelineConfig(
    "published",
    None,
    "1",
    "stage",
    1,
    1.0,
    "lognormal",
    0.2,
    2,
    0.66,
    1.0,
    10.0,
    1,
    None,
    False,
    False,
    "none",
    "2+8",
)


def check_pipeline(one: PipelineConfig) -> None:
    """Refuse unknown words, and numbers that contradict them."""
    choices = (
        ("cut", one.cut, CUTS),
        ("queue", one.queue, QUEUES),
        ("times", one.times, TIMES),
        ("recut", one.recut, RECUTS),
    )
    for key, value, known in choices:
        if value not in known:
            raise UserError(f"pipeline.{key}={value} is unknown: write one of {', '.join(known)}")
    if one.times == "exponential" and one.times_cv != 1.0:
        raise UserError(
            f"pipeline.times=exponential has a coefficient of variation of 1 and not of {one.times_cv:g}: "
            "write pipeline.times_cv=1"
        )
