"""A language model in stages that is cut anew: replicas of the new cut come, then those of the old one go.

A cut comes while replicas of its stages load. It is the model's when none loads any more and every stage has
one that serves; it is given up when a stage has neither.
"""

from collections.abc import Mapping

from serving.elastic.stage_replicas import StageReplicas
from serving.engine.engine import Engine
from serving.protocols.stages import CutAnew, StartReplicas, StopReplicas
from serving.services.cut_changes import CutChanges
from serving.services.stage import Stage
from serving.services.staged import StagedService
from serving.vocabulary.actions import Action
from serving.vocabulary.layers import Part


class StageRecut:
    """Of all models. ``replicas``: who starts and stops them."""

    __slots__ = ("_engines", "_replicas", "_services", "_why")

    def __init__(
        self, replicas: StageReplicas, engines: Mapping[int, Engine], services: Mapping[str, StagedService]
    ) -> None:
        self._replicas, self._engines, self._services = replicas, engines, services
        self._why: dict[str, str] = {}  # of the cut that comes, by model

    def begin(self, now_ns: int, service: StagedService, wish: CutAnew, actions: list[Action]) -> None:
        """Replicas of the stages that are new load, unless the cut cannot be."""
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
                start = StartReplicas(stage.index, count, wish.reason, own)
                self._replicas.start(now_ns, service, stage, start, actions)
        self.changed(now_ns, service, actions)

    def look(self, now_ns: int, actions: list[Action]) -> None:
        """Replicas have come, gone or given up."""
        for service in self._services.values():
            self.changed(now_ns, service, actions)

    def comes(self, service: StagedService) -> bool:
        """Whether a cut comes."""
        changes = service.cut_changes
        return changes is not None and bool(changes.stages.coming)

    def changed(self, now_ns: int, service: StagedService, actions: list[Action]) -> None:
        """The cut that comes is there, or is given up, or goes on coming."""
        if not self.comes(service):
            return
        changes = _changes(service)
        states = [self._states(stage) for stage in changes.stages.coming]
        if not all(states):
            self._end(now_ns, service, changes.give_up(), "its new cut is given up", actions)
            self._replicas.tell(now_ns, "shortage", service.model, -1, "not cut anew: a stage has nobody")
        elif all("loading" not in one for one in states):
            why = self._why[service.model]
            self._replicas.tell(now_ns, "recut", service.model, -1, why)
            self._end(now_ns, service, changes.take(actions), why, actions)

    def _states(self, stage: Stage) -> set[str]:
        """Of its replicas, but for those that are to go."""
        found = self._replicas.states.items()
        own = [state for one, state in found if self._engines[one].replica.part == stage.part]
        return {state for state in own if state != "draining"}

    def _end(
        self, now_ns: int, service: StagedService, stages: list[Stage], why: str, actions: list[Action]
    ) -> None:
        """All replicas of these stages go, and copies of them are forgotten."""
        replicas, parts = self._replicas, [stage.part for stage in stages]
        own = [one for one in replicas.states if self._engines[one].replica.part in parts]
        if own:
            replicas.stop(now_ns, service, StopReplicas(0, tuple(own), why), actions)
        for part in parts:
            replicas.hosts.copies.forget(now_ns, part)


def _changes(service: StagedService) -> CutChanges:
    changes = service.cut_changes
    assert changes is not None, "models without KV stay as they are cut"
    return changes
