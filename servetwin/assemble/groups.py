"""Which replicas are ranks of one data-parallel group, and the joint part of their steps."""

from collections.abc import Mapping, Sequence

from servetwin.assemble.hardware import Hardware
from servetwin.config.config import RunConfig
from serving.vocabulary.replica import Replica
from simcore.lockstep.groups import GroupPlan


def groups_of(config: RunConfig, replicas: Sequence[Replica]) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every group, consecutive replicas; none without data parallelism."""
    ranks = config.engine.data_parallel_size
    if ranks == 1:
        return ()
    ids = [replica.id for replica in replicas]
    return tuple(tuple(ids[first : first + ranks]) for first in range(0, len(ids), ranks))


def group_plans(
    config: RunConfig, replicas: Sequence[Replica], hardware: Mapping[str, Hardware]
) -> list[GroupPlan]:
    """Return the simulated world's description of the groups."""
    plans = []
    for ranks in groups_of(config, replicas):
        kind = hardware[replicas[ranks[0]].model]
        assert kind.experts is not None, "engines of a dense model share nothing"
        plans.append(GroupPlan(ranks, kind.rows, kind.experts))
    return plans
