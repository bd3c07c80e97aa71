"""Changes the cut of a staged language model: replicas of the new cut load, then the old ones stop.

A cut is coming while replicas of its stages load. It becomes the model's cut once none loads any more and
every stage has a serving replica. It is given up if a stage has neither a loading nor a serving one.
"""

from collections.abc import Mapping

from serving.elastic.stage_replicas import StageReplicas
from serving.engine.engine import Engine
from serving.protocols.stages import CutAnew, StartReplicas, StopReplicas
from serving.services.language.cut_changes import CutChanges
from serving.services.staged import StagedService
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Action
from serving.vocabulary.layers import Part


class StageRecut:
    """The coming cuts of all models. ``replicas``: starts and stops their replicas."""

    __slots__ = ("_engines", "_replicas", "_services", "_why")

    def __init__(
        self, replicas: StageReplicas, engines: Mapping[int, Engine], services: Mapping[str, StagedService]
    ) -> None:
        self._replicas, self._engines, self._services = replicas, engines, services
        self._why: dict[str, str] = {}  # reason of the coming cut, by model

    def begin(self, now_ns: int, service: StagedService, wish: CutAnew, actions: list[Action]) -> None:
        """Load replicas of the new stages, unless the cut is impossible."""
        changes, model = _changes(service), service.model
        ends = (*wish.begins[1:], service.stages[-1].part.last)
        parts = [Part(model, first, last) for first, last in zip(wish.begins, ends)]
        why = changes.kept_from(parts)
        if why:
            self._replicas.tell(now_ns, "shortage", model, -1, f"not cut anew: {why}")
            return
        before, gpus = service.stages, list(wish.gpus)
        self._why[model] = wish.reason
        for stage, count in zip(changes.propose(parts), wish.replicas, strict=True):
            if stage not in before:
                own, gpus = tuple(gpus[:count]), gpus[count:]
                start = StartReplicas(stage.index, count, wish.reason, gpus=own)
                self._replicas.start(now_ns, service, stage, start, actions)
        self.changed(now_ns, service, actions)

    def look(self, now_ns: int, actions: list[Action]) -> None:
        """Check all coming cuts after replicas finished loading, stopped or were given up."""
        for service in self._services.values():
            self.changed(now_ns, service, actions)

    def comes(self, service: StagedService) -> bool:
        """Whether a cut is coming."""
        changes = service.cut_changes
        return changes is not None and bool(changes.stages.coming)

    def changed(self, now_ns: int, service: StagedService, actions: list[Action]) -> None:
        """Take the coming cut if it is ready, give it up if it failed, else let it go on."""
        if not self.comes(service):
            return
        changes = _changes(service)
        states = [self._states(stage) for stage in changes.stages.coming]
        if not all(states):
            self._end(now_ns, service, changes.give_up(), "its new cut is given up", actions)
            self._replicas.tell(now_ns, "shortage", service.model, -1, "not cut anew: a stage has nobody")
        elif all("loading" not in state for state in states):
            why = self._why[service.model]
            self._replicas.tell(now_ns, "recut", service.model, -1, why)
            self._end(now_ns, service, changes.take(actions), why, actions)

    def _states(self, stage: Stage) -> set[str]:
        """States of the stage's replicas, without draining ones."""
        states = self._replicas.states.items()
        own = [state for replica, state in states if self._engines[replica].replica.part == stage.part]
        return {state for state in own if state != "draining"}

    def _end(
        self, now_ns: int, service: StagedService, stages: list[Stage], why: str, actions: list[Action]
    ) -> None:
        """Stop all replicas of these stages and forget their copies."""
        replicas, parts = self._replicas, [stage.part for stage in stages]
        own = [state for state in replicas.states if self._engines[state].replica.part in parts]
        if own:
            replicas.stop(now_ns, service, StopReplicas(0, tuple(own), why), actions)
        for part in parts:
            replicas.hosts.copies.forget(now_ns, part)


def _changes(service: StagedService) -> CutChanges:
    changes = service.cut_changes
    assert changes is not None, "models without KV stay as they are cut"
    return changes
