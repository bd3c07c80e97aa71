"""How a model in stages is cut and served, if ``system/stages`` puts it in stages."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.key import COUNT, Range, key
from servetwin.config.readers import ONE_PASS_MODELS, PASSES_OF_BATCHES, RECUT_BY_CV, SCALING_STAGES
from serving.vocabulary.errors import UserError

CUTS: Final = ("published", "layers", "bytes", "time")
QUEUES: Final = ("stage", "replica")
TIMES: Final = ("lognormal", "gamma", "exponential")
RECUTS: Final = ("none", "time", "cv")
PLACEMENTS: Final = ("spread", "packed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """How a model in stages is cut and served, if ``system/stages`` puts it in stages."""

    cut: str = key(
        "`published`, or evenly by `layers`, `bytes` or `time` into `pipeline.stages`",
        default=CUTS[0],
        choices=CUTS,
    )
    stages: int | None = key("number of stages; null: as many as published", default=None, within=COUNT)
    replicas: str = key(
        "replicas of each stage at the start: one number, or one per stage with + between", default="1"
    )
    placement: str = key(
        "GPUs of the first replicas: `spread`: each on the host with the fewest; `packed`: on the "
        "lowest GPUs",
        default=PLACEMENTS[0],
        choices=PLACEMENTS,
        read_by=(ONE_PASS_MODELS,),
    )
    queue: str = key(
        "requests wait at the `stage`, for the first idle replica, or at a `replica`, assigned on arrival",
        default=QUEUES[0],
        choices=QUEUES,
        read_by=(ONE_PASS_MODELS,),
    )
    batch: int = key("maximum requests per pass", default=1, within=COUNT, read_by=(ONE_PASS_MODELS,))
    batch_cost: float = key(
        "share of its time that every request but the longest adds to a pass",
        default=1.0,
        within=Range(low=0, high=1),
        read_by=(ONE_PASS_MODELS, PASSES_OF_BATCHES),
    )
    timeout_s: float = key(
        "a request that no replica has taken so long after its arrival fails, at stage k of n "
        "after (n - k) / n of it (QUART's code); 0: never",
        default=0.0,
        within=Range(low=0),
        read_by=(ONE_PASS_MODELS,),
    )
    times: str = key(
        "distribution of pass times around the stage's time",
        default=TIMES[0],
        choices=TIMES,
        read_by=(ONE_PASS_MODELS,),
    )
    times_cv: float = key(
        "coefficient of variation of pass times; 0: not drawn",
        default=0.2,
        within=Range(low=0, high=10),
        read_by=(ONE_PASS_MODELS,),
    )
    cpu_cores: int = key("CPU cores of a replica", default=2, within=COUNT, read_by=(ONE_PASS_MODELS,))
    cpu_share: float = key(
        "share of a pass that 2 cores spend before the GPU starts (QUART, Fig. 3b)",
        default=0.66,
        within=Range(low=0, high=1, open_high=True),
        read_by=(ONE_PASS_MODELS,),
    )
    period_s: float = key(
        "seconds between two calls of a policy that scales stages",
        default=1.0,
        within=Range(low=0.001),
        read_by=(SCALING_STAGES,),
    )
    window_s: float = key(
        "seconds of arrivals that such a policy sees",
        default=10.0,
        within=Range(low=0.001),
        read_by=(SCALING_STAGES,),
    )
    min_replicas: int = key(
        "replicas that each stage keeps at least", default=1, within=COUNT, read_by=(SCALING_STAGES,)
    )
    max_replicas: int | None = key(
        "most replicas of a model; null: one for each GPU",
        default=None,
        within=COUNT,
        read_by=(SCALING_STAGES,),
    )
    live: bool = key(
        "a loading replica runs its loaded layers, a serving one the others; with KV it needs "
        "`pipeline.moves` ([LANGUAGE_STAGES](../explanation/LANGUAGE_STAGES.md))",
        default=False,
    )
    moves: bool = key(
        "KV moves, while requests decode, off replicas about to stop and to those that have loaded",
        default=False,
    )
    recut: str = key(
        "a language model's layers are divided anew by the `time` of stages or the `cv` of "
        "arrivals; needs `pipeline.moves`",
        default=RECUTS[0],
        choices=RECUTS,
    )
    recut_stages: str = key(
        "stages for steady arrivals + stages for bursts", default="2+8", read_by=(RECUT_BY_CV,)
    )

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


PLAIN: Final = PipelineConfig()


def check_pipeline(one: PipelineConfig) -> None:
    """Refuse numbers that contradict words."""
    if one.times == "exponential" and one.times_cv != 1.0:
        raise UserError(
            f"pipeline.times=exponential has a coefficient of variation of 1 and not of {one.times_cv:g}: "
            "write pipeline.times_cv=1"
        )
