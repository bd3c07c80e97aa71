"""QUART's CPU compensator (section 5.3): more cores for a stage's remaining replicas if some are removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from policies.quart.queueing import DelayForm, delay_s
from serving.protocols.stages import StageView


@dataclass(frozen=True, slots=True)
class CoreModel:
    """A pass with c cores takes ``fixed`` + ``per_core`` / c."""

    fixed: float
    per_core: float

    def latency(self, cores: int) -> float:
        """Latency of a pass, in the unit of the points."""
        return self.fixed + self.per_core / cores

    def pass_s(self, stage: StageView, cores: int, now_cores: int) -> float:
        """Duration of a pass with ``cores`` cores, from its present duration with ``now_cores``."""
        return stage.service_s * self.latency(cores) / self.latency(now_cores)


def fitted(points: Sequence[tuple[int, float]]) -> CoreModel:
    """Least squares over (cores, latency), linear in 1 / cores. Raises ValueError without two core counts."""
    inverse = [1 / cores for cores, _ in points]
    if len(set(inverse)) < 2:
        raise ValueError("a line through core counts needs two different ones")
    mean, level = sum(inverse) / len(points), sum(latency for _, latency in points) / len(points)
    covariance = sum(
        (row - mean) * (latency - level) for row, (_, latency) in zip(inverse, points, strict=True)
    )
    slope = covariance / sum((row - mean) ** 2 for row in inverse)
    return CoreModel(level - slope * mean, slope)


# Fig. 3b: 4 cores cut the median latency of a stage by 33 % against 2. Two points, so the line is theirs.
PAPER_POINTS: Final = ((2, 1.0), (4, 0.67))
# CPU_max, for which the paper has no number: ours, twice the cores that its figure compares.
MOST_CORES: Final = 8


@dataclass(frozen=True, slots=True)
class Compensation:
    """How many replicas a stage can really give up, and the cores of those that stay."""

    give: int
    cores: int


class CpuCompensator:
    """Finds by regression the fewest cores with which the remaining replicas meet the target."""

    def __init__(self, model: CoreModel | None = None, most_cores: int = MOST_CORES) -> None:
        self._model = model or fitted(PAPER_POINTS)
        self._most_cores = most_cores

    def compensate(
        self,
        stage: StageView,
        *,
        give: int,
        cv: float,
        target_s: float,
        now_cores: int,
        free_cores: int,
        form: DelayForm = "erlang_c",
    ) -> Compensation:
        """``free_cores``: how many more each replica can get on its host. ``form``: the corrector's.

        If even the most cores do not meet the target, one replica fewer is given up, and so on.
        """
        most = max(min(self._most_cores, now_cores + free_cores), now_cores)
        while give > 0:
            for cores in range(now_cores, most + 1):
                delay = self.expected_s(
                    stage, replicas=stage.supply - give, cores=cores, cv=cv, now_cores=now_cores, form=form
                )
                if delay <= target_s:
                    return Compensation(give, cores)
            give -= 1
        return Compensation(0, now_cores)

    def expected_s(
        self,
        stage: StageView,
        *,
        replicas: int,
        cores: int,
        cv: float,
        now_cores: int,
        form: DelayForm = "erlang_c",
    ) -> float:
        """Delay with these replicas and cores: the longer of ``form`` and the formula that uses the CVs."""
        per_s = stage.batch / self._model.pass_s(stage, cores, now_cores)
        forms: tuple[DelayForm, ...] = (form, "allen_cunneen")
        return max(
            delay_s(
                stage.arrival_per_s, per_s, replicas, form=form, arrival_cv=cv, service_cv=stage.service_cv
            )
            for form in forms
        )
