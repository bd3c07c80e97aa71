"""How running requests migrate, if ``system/migration`` enables migration."""

from dataclasses import dataclass
from typing import Final

from serving.vocabulary.errors import UserError

MODES: Final = ("live", "stop_and_copy", "recompute")
VICTIMS: Final = ("recompute", "neighbour")
# At most so many blocks are left for the last stage. paper: those that the last steps added (section 4.2);
# shipped: the default of the artefact (AlibabaPAI/llumnix, branch osdi24ae).
LAST_STAGES: Final = {"paper": 1, "shipped": 16}
# Besides the bytes of the last stage, both sides must agree and resume: Fig. 10's down time of the shortest
# context minus its copy is about 10 ms with one GPU and 29 ms with four; between and beyond, it is linear.
CONTROL_MS: Final = 10.0
CONTROL_MS_PER_GPU: Final = (29.0 - 10.0) / 3
# Decode steps take at most 1 % longer while KV is copied, at the source and at the destination (Fig. 10,
# right, and the text beside it).
SLOWDOWN: Final = 0.01


@dataclass(frozen=True, slots=True)
class MigrationConfig:
    """``mode``: KV is copied while the request decodes (``live``), while it stops (``stop_and_copy``), or is
    recomputed (``recompute``). ``last_stage``: the rule, of ``LAST_STAGES``. ``max_stages``: one more aborts.
    ``period_ms``: between two calls of the policy. ``control_ms``: the last stage's time besides its bytes;
    None: by the GPUs of an instance. ``victims``: of ``VICTIMS``; ``neighbour``: if the next step would leave
    less than the share ``reserve`` of KV memory free, the next preemption victim migrates. ``into_loading``:
    also to loading instances, which take the request when they are loaded. ``slowdown``: the share by which
    steps of both ends take longer while KV is copied.
    """

    mode: str
    last_stage: str
    max_stages: int
    period_ms: float
    control_ms: float | None
    victims: str = "recompute"
    reserve: float = 0.01
    into_loading: bool = False
    slowdown: float = SLOWDOWN


LIVE: Final = MigrationConfig("live", "shipped", 3, 50.0, None)


def check_migration(one: MigrationConfig) -> None:
    """Refuse unknown words."""
    words = ("mode", one.mode, MODES), ("victims", one.victims, VICTIMS)
    for key, value, known in (*words, ("last_stage", one.last_stage, tuple(LAST_STAGES))):
        if value not in known:
            raise UserError(f"migration.{key}={value} is unknown: write one of {', '.join(known)}")
    if one.victims == "neighbour" and one.mode == "recompute":
        raise UserError(
            "migration.victims=neighbour sends KV, which migration.mode=recompute does not: write "
            "migration.mode=live or migration.victims=recompute"
        )
    if one.into_loading and one.mode != "live":
        raise UserError(
            f"migration.into_loading=true copies KV while the request decodes, and migration.mode={one.mode} "
            "does not: write migration.mode=live or migration.into_loading=false"
        )
    if one.victims == "recompute" and one.reserve != LIVE.reserve:
        raise UserError(
            f"migration.reserve={one.reserve:g} does nothing with migration.victims=recompute: leave it out, "
            "or write migration.victims=neighbour"
        )


def control_ms(one: MigrationConfig, gpus: int) -> float:
    """Return the last stage's control time of an instance with so many GPUs."""
    return CONTROL_MS + CONTROL_MS_PER_GPU * (gpus - 1) if one.control_ms is None else one.control_ms
