"""QUART's stage scaler: combines corrector, smoother, CPU compensator, KeysManager and placement."""

from collections.abc import Sequence
from dataclasses import replace

from policies.quart.corrector import Correction, Corrector
from policies.quart.cpu import CpuCompensator
from policies.quart.demand import NS_PER_S, least_busy, targets_s
from policies.quart.free_room import FreeRoom, spread
from policies.quart.keys import KeysManager
from policies.quart.placement import Placement
from policies.quart.smoother import Smoother, Surplus
from serving.protocols.stages import (
    EvictCopy,
    HostCopyView,
    KeepCopy,
    MarkKeyStages,
    PipelineView,
    SetCores,
    StageDecision,
    StageHostView,
    StageReplicaView,
    StartReplicas,
    StopReplicas,
)

KEY_FOR_S = 300.0
"""How long a stage is a key stage after it was last found to be one (ours; the paper's list only grows)."""


class Quart:
    """One pipeline's scaler. A part that is None is switched off.

    Without smoother no stage shrinks. Without compensator all replicas the smoother takes are removed and no
    cores are added. Without KeysManager no copies are kept; without placement replicas are spread.
    """

    def __init__(
        self,
        *,
        corrector: Corrector | None = None,
        smoother: Smoother | None = None,
        compensator: CpuCompensator | None = None,
        keys: KeysManager | None = None,
        placement: Placement | None = None,
        key_for_s: float = KEY_FOR_S,
    ) -> None:
        self.corrector = corrector or Corrector()
        self.smoother, self.compensator, self.keys, self.placement = smoother, compensator, keys, placement
        self._key_for_ns = round(key_for_s * NS_PER_S)
        self._key_since_ns: dict[int, int] = {}
        self._marked: frozenset[int] = frozenset()

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Once per period of the corrector: key stages, their copies in host memory, growth, shrinking.

        Copies come before growth: a stage that becomes a key stage now has replicas that serve, so its hosts
        have its parameters, and the replicas that it gets now can load from there (section 6.1: the cache
        manager forks a key stage on the servers where it is; section 4.2: "rapid forking of a replica to a
        new GPU").
        """
        corrections = self.corrector.correct(view)
        if not corrections:
            return ()
        decisions = [*self._mark(view, corrections)]
        if self.keys is not None:
            copies = self.keys.manage(view, self._marked)
            decisions += copies
            view = _with_copies(view, copies)
        room, compensated = FreeRoom(view), self.compensator is not None and view.cores_count
        decisions += self._grow(view, corrections, room)
        if self.smoother is not None:
            settings = self.corrector.settings
            growing = {correction.stage for correction in corrections if correction.growth}
            for surplus in self.smoother.smooth(view, settings.target_s, settings.form, compensated):
                if surplus.stage not in growing:
                    decisions += self._shrink(view, surplus, room)
        return tuple(decisions)

    def _mark(self, view: PipelineView, corrections: Sequence[Correction]) -> list[StageDecision]:
        keys = [correction for correction in corrections if correction.is_key]
        for correction in keys:
            self._key_since_ns[correction.stage] = view.now_ns
        now = frozenset(
            stage for stage, at in self._key_since_ns.items() if view.now_ns - at <= self._key_for_ns
        )
        if now == self._marked:
            return []
        self._marked = now
        why = (
            "; ".join([f"stage {correction.stage}: {correction.reason}" for correction in keys])
            or "the others are long past"
        )
        return [MarkKeyStages(tuple(sorted(now)), why)]

    def _grow(
        self, view: PipelineView, corrections: Sequence[Correction], room: FreeRoom
    ) -> list[StageDecision]:
        """Start replicas, key stages first: they need the available room most."""
        decisions: list[StageDecision] = []
        order = sorted(
            corrections, key=lambda correction: (correction.stage not in self._marked, correction.stage)
        )
        for correction in order:
            if not correction.growth:
                continue
            stage = view.stages[correction.stage]
            if self.placement is None:
                gpus = spread(room, stage, correction.growth)
                if gpus:
                    decisions.append(StartReplicas(correction.stage, len(gpus), correction.reason, gpus=gpus))
            else:
                is_key = correction.stage in self._marked
                decisions += self.placement.place(
                    view, stage, count=correction.growth, is_key=is_key, room=room, reason=correction.reason
                )
        return decisions

    def _shrink(self, view: PipelineView, surplus: Surplus, room: FreeRoom) -> list[StageDecision]:
        stage = view.stages[surplus.stage]
        give = max(min(surplus.count, stage.serving - 1), 0)
        stay = [replica for replica in stage.replicas if replica.state == "serving"]
        now_cores = cores = min([replica.cpu_cores for replica in stay], default=1)
        if self.compensator is not None and view.cores_count and give:
            goal_s = targets_s(view, self.corrector.settings.target_s)[surplus.stage]
            spare = _spare_cores(stay, room)
            answer = self.compensator.compensate(
                stage,
                give=give,
                cv=surplus.cv,
                target_s=goal_s,
                now_cores=now_cores,
                free_cores=spare,
                form=self.corrector.settings.form,
            )
            give, cores = answer.give, answer.cores
        if not give:
            return []
        stopped = [replica.id for replica in least_busy(stage, give)]
        why = f"{stage.supply - give} do at CV {surplus.cv:.2f}, {surplus.least} at least"
        decisions: list[StageDecision] = [StopReplicas(stage.index, tuple(stopped), why)]
        raised = [replica for replica in stay if replica.id not in stopped and replica.cpu_cores < cores]
        if raised:
            for replica in raised:
                room.cores[replica.host] -= cores - replica.cpu_cores
            why = f"{give} fewer replicas: {cores} cores keep the target"
            decisions.append(SetCores(stage.index, tuple([replica.id for replica in raised]), cores, why))
        return decisions


def _with_copies(view: PipelineView, decisions: Sequence[StageDecision]) -> PipelineView:
    """The view once these copies are kept and evicted."""
    if not decisions:
        return view
    kept = {(one.host, one.stage) for one in decisions if isinstance(one, KeepCopy)}
    evicted = {(one.host, one.model, one.stage) for one in decisions if isinstance(one, EvictCopy)}

    def host_after(host: StageHostView) -> StageHostView:
        stay = [copy for copy in host.copies if (host.id, copy.model, copy.stage) not in evicted]
        new = [
            HostCopyView(view.model, stage.index, stage.bytes, view.now_ns)
            for stage in view.stages
            if (host.id, stage.index) in kept
        ]
        return replace(host, copies=(*stay, *new))

    return replace(view, hosts=tuple([host_after(host) for host in view.hosts]))


def _spare_cores(replicas: Sequence[StageReplicaView], room: FreeRoom) -> int:
    """How many more cores each of these replicas can get on its host if all get them."""
    counts: dict[int, int] = {}
    for replica in replicas:
        counts[replica.host] = counts.get(replica.host, 0) + 1
    return min([max(room.cores[host], 0) // count for host, count in counts.items()], default=0)
