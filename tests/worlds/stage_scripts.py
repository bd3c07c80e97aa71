"""Stage scalers for tests: one that says what it was told to say, one that says anything that may be said."""

from collections.abc import Mapping
from random import Random

from serving.protocols.stages import (
    CutAnew,
    EvictCopy,
    KeepCopy,
    MarkKeyStages,
    PipelineView,
    SetBatch,
    SetCores,
    StageDecision,
    StartReplicas,
    StopReplicas,
)


class Scripted:
    """At look n, counted from 1, what ``script`` has for it. ``views``: all that it was shown."""

    def __init__(self, script: Mapping[int, tuple[StageDecision, ...]]) -> None:
        self._script = dict(script)
        self.views: list[PipelineView] = []

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        self.views.append(view)
        return self._script.get(len(self.views), ())


class AnythingGoes:
    """Starts, stops, cores, batches, copies and cuts at random, within what a scaler may answer.

    From ``until_ns`` on it does no more than start a replica of each stage that has none.
    """

    memory_s = 0.0

    def __init__(self, seed: int, until_ns: int = 400_000_000) -> None:
        self._random, self._until_ns = Random(f"anything goes {seed}"), until_ns

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        if view.now_ns >= self._until_ns:
            none = [stage for stage in view.stages if not stage.supply]
            room = max(view.max_replicas - view.supply, 0)
            return tuple([StartReplicas(stage.index, 1, "it has none") for stage in none[:room]])
        random, stage = self._random, self._random.choice(view.stages)
        if not view.hosts:
            return ()
        if view.cut is not None and not view.cut.coming and random.random() < 0.2:
            inner = sorted(random.sample(range(1, view.cut.layers), random.randint(0, 3)))
            counts = tuple([random.randint(1, 2) for _ in (0, *inner)])
            if (0, *inner) != tuple([one.layers[0] for one in view.stages]) and sum(counts) <= 8:
                return (CutAnew((0, *inner), counts, "anything"),)
        host = random.choice(view.hosts)
        kind = random.choice(("start", "start", "stop", "stop", "cores", "keep", "evict", "key", "none"))
        alive = [one for one in stage.replicas if one.state != "draining"]
        if kind == "start" and stage.supply < stage.maximum and view.supply < view.max_replicas:
            source = "host" if host.has_copy(view.model, stage.index) and random.random() < 0.5 else "any"
            free = [gpu.id for gpu in host.gpus if gpu.free_bytes >= stage.gpu_bytes]
            if free and host.free_cores >= view.cores_per_replica:
                gpus = (random.choice(free),) if source == "host" or random.random() < 0.7 else ()
                return (StartReplicas(stage.index, 1, "anything", gpus, source),)
        if kind == "stop" and stage.supply > stage.minimum:
            return (StopReplicas(stage.index, (random.choice(alive).id,), "anything"),)
        if kind == "cores" and alive and host.free_cores > 4:
            return (SetCores(stage.index, (random.choice(alive).id,), random.randint(1, 3), "anything"),)
        if kind == "none" and alive and view.batch > 1:
            most = random.randint(1, view.batch)
            return (SetBatch(stage.index, (random.choice(alive).id,), most, "anything"),)
        if kind == "keep" and not host.has_copy(view.model, stage.index):
            return (KeepCopy(stage.index, host.id, "anything"),)
        if kind == "evict" and host.copies:
            copy = random.choice(host.copies)
            return (EvictCopy(copy.model, copy.stage, host.id, "anything"),)
        if kind == "key":
            return (MarkKeyStages((stage.index,), "anything"),)
        return ()
