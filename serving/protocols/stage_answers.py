"""Asks a stage scaler, and checks its answer against the pipeline that it was shown."""

from collections import Counter
from math import inf
from typing import Any, Final, NoReturn

from serving.protocols.policy_faults import Question, ask, read, refused, shown, wrong_reason
from serving.protocols.stages import (
    CutAnew,
    EvictCopy,
    KeepCopy,
    MarkKeyStages,
    PipelineView,
    SetBatch,
    SetCores,
    StageDecision,
    StageHostView,
    StageReplicaView,
    StageScaler,
    StageView,
    StartReplicas,
    StopReplicas,
)

KINDS: Final = (StartReplicas, StopReplicas, SetCores, SetBatch, KeepCopy, EvictCopy, MarkKeyStages, CutAnew)
SOURCES: Final = ("any", "host", "ssd")
SCALE: Final = Question(
    "scale",
    "a tuple of StartReplicas, StopReplicas, SetCores, SetBatch, KeepCopy, EvictCopy, MarkKeyStages and "
    "CutAnew, empty if nothing changes: each names stages, hosts, GPUs, replicas and copies of the view, has "
    "a reason, a str that is not empty, and keeps each stage's minimum and maximum, the pipeline's "
    "max_replicas and batch, free GPU memory, free cores and free host memory",
)
MEMORY: Final = Question("memory_s", "seconds: a number of 0 or more, not infinite", is_attribute=True)


class CheckedStageScaler:
    """A stage scaler whose answers are checked."""

    __slots__ = ("_scaler",)

    def __init__(self, scaler: StageScaler) -> None:
        self._scaler = scaler

    @property
    def memory_s(self) -> float | None:
        """How many seconds the scaler remembers; None if it does not say. Raises PolicyError."""
        if not hasattr(self._scaler, "memory_s"):
            return None
        answer = read(self._scaler, MEMORY)
        if type(answer) not in (int, float) or not 0 <= answer < inf:
            raise refused(self._scaler, MEMORY, answer, "the value is not a duration")
        return float(answer)

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Return the checked answer. Raises PolicyError."""
        answer: Any = ask(self._scaler, SCALE, view)
        if type(answer) is not tuple:
            raise refused(
                self._scaler, SCALE, answer, f"the answer is a {type(answer).__name__}, not a tuple"
            )
        if answer:
            _Check(self._scaler, view).decisions(answer)
        return answer


class _Check:
    """Checks one answer against the view it was given for."""

    def __init__(self, policy: object, view: PipelineView) -> None:
        self._policy, self._view = policy, view
        self._stages: dict[object, StageView] = {stage.index: stage for stage in view.stages}
        self._hosts: dict[object, StageHostView] = {host.id: host for host in view.hosts}
        self._host_of_gpu: dict[object, int] = {gpu.id: host.id for host in view.hosts for gpu in host.gpus}
        self._gpu_bytes = {gpu.id: gpu.free_bytes for host in view.hosts for gpu in host.gpus}
        self._cores = {host.id: host.free_cores for host in view.hosts}
        self._host_bytes = {host.id: host.memory_bytes - host.used_bytes for host in view.hosts}
        self._growth: Counter[int] = Counter()
        self._named = set[tuple[object, ...]]()
        self._read = set[tuple[int, int]]()  # (host, stage of this model) whose copy the answer may load from

    def decisions(self, answer: tuple[Any, ...]) -> None:
        """Check each decision, then their sums. Raises PolicyError."""
        for decision in answer:
            self._one(decision)
        for index, growth in self._growth.items():
            stage = self._stages[index]
            count = stage.supply + growth
            if growth > 0 and count > stage.maximum:
                self._refuse(answer, f"{count} replicas of stage {index} are above {stage.maximum}")
            if growth < 0 and count < stage.minimum:
                self._refuse(answer, f"{count} replicas of stage {index} are below {stage.minimum}")
        total = self._view.supply + sum(self._growth.values())
        if total > max(self._view.max_replicas, self._view.supply):
            self._refuse(answer, f"{total} replicas in all are above {self._view.max_replicas}")

    def _one(self, decision: Any) -> None:
        kind = type(decision)
        if kind not in KINDS:
            self._refuse(decision, f"a decision cannot be a {kind.__name__}")
        if type(decision.reason) is not str or not decision.reason:
            self._refuse(decision, wrong_reason(decision.reason))
        if kind is MarkKeyStages:
            self._marked(decision)
        elif kind is CutAnew:
            self._cut(decision)
        elif kind is EvictCopy:
            self._evicted(decision)
        elif kind is KeepCopy:
            self._kept(decision, self._stage(decision))
        elif kind is StartReplicas:
            self._started(decision, self._stage(decision))
        elif kind is StopReplicas:
            self._stopped(decision, self._stage(decision))
        elif kind is SetBatch:
            self._batched(decision, self._stage(decision))
        else:
            self._cored(decision, self._stage(decision))

    def _stage(self, decision: Any) -> StageView:
        if type(decision.stage) is not int or decision.stage not in self._stages:
            self._refuse(decision, f"{self._view.model} has no stage {shown(decision.stage)}")
        return self._stages[decision.stage]

    def _started(self, decision: Any, stage: StageView) -> None:
        count, gpus, cores = decision.count, decision.gpus, decision.cpu_cores
        if type(count) is not int or count < 1:
            self._refuse(decision, f"count must be an int of 1 or more, not {shown(count)}")
        if type(decision.source) is not str or decision.source not in SOURCES:
            self._refuse(decision, f"the source {shown(decision.source)} is unknown")
        if type(cores) is not int or cores < 0:
            self._refuse(decision, f"cpu_cores must be an int of 0 or more, not {shown(cores)}")
        if type(gpus) is not tuple or len(gpus) not in (0, count):
            self._refuse(decision, f"gpus must be a tuple of {count} GPUs, or empty")
        for gpu in gpus:
            self._take_gpu(decision, gpu, stage, cores or self._view.cores_per_replica)
        if not gpus and decision.source != "ssd":
            self._read |= {(host, stage.index) for host in self._view.hosts_with(stage.index)}
        self._growth[stage.index] += count

    def _take_gpu(self, decision: Any, gpu: Any, stage: StageView, cores: int) -> None:
        if type(gpu) is not int or gpu not in self._host_of_gpu:
            self._refuse(decision, f"GPU {shown(gpu)} does not exist")
        host = self._host_of_gpu[gpu]
        if decision.source == "host" and not self._has_copy(host, stage.index):
            self._refuse(decision, f"host {host} has no copy of stage {stage.index}")
        if decision.source != "ssd":
            self._read.add((host, stage.index))
        self._gpu_bytes[gpu] -= stage.gpu_bytes
        if self._gpu_bytes[gpu] < 0:
            self._refuse(decision, f"GPU {gpu} lacks {-self._gpu_bytes[gpu]} bytes for the decision")
        self._take_cores(decision, host, cores)

    def _has_copy(self, host: int, stage: int) -> bool:
        """Whether the host has a copy of the stage after the decisions that the answer made before."""
        model = self._view.model
        if ("evict", host, model, stage) in self._named:
            return False
        return ("keep", stage, host) in self._named or self._hosts[host].has_copy(model, stage)

    def _take_cores(self, decision: Any, host: int, cores: int) -> None:
        self._cores[host] -= cores
        if cores > 0 and self._cores[host] < 0:
            self._refuse(decision, f"host {host} lacks {-self._cores[host]} cores for the decision")

    def _stopped(self, decision: Any, stage: StageView) -> None:
        there = self._replicas(decision, stage, "stop")
        for replica in there:
            if replica.state == "draining":
                self._refuse(decision, f"replica {replica.id} is draining already")
        self._growth[stage.index] -= len(there)

    def _cored(self, decision: Any, stage: StageView) -> None:
        cores = decision.cpu_cores
        if type(cores) is not int or cores < 1:
            self._refuse(decision, f"cpu_cores must be an int of 1 or more, not {shown(cores)}")
        for replica in self._replicas(decision, stage, "cores"):
            self._take_cores(decision, replica.host, cores - replica.cpu_cores)

    def _batched(self, decision: Any, stage: StageView) -> None:
        most, limit = decision.most, self._view.batch
        if type(most) is not int or not 1 <= most <= limit:
            self._refuse(
                decision, f"most must be an int from 1 to {limit}, the pipeline's batch, not {shown(most)}"
            )
        self._replicas(decision, stage, "batch")

    def _replicas(self, decision: Any, stage: StageView, act: str) -> list[StageReplicaView]:
        """Return the replicas that the decision names; no two decisions of one kind may name the same."""
        named: Any = decision.replicas
        if type(named) is not tuple or not named or any(type(number) is not int for number in named):
            self._refuse(decision, "replicas must be a tuple of ids that is not empty")
        there = {replica.id: replica for replica in stage.replicas}
        for number in named:
            if number not in there:
                self._refuse(decision, f"stage {stage.index} has no replica {number}")
            if (act, number) in self._named:
                self._refuse(decision, f"replica {number} is named twice")
            self._named.add((act, number))
        return [there[number] for number in named]

    def _kept(self, decision: Any, stage: StageView) -> None:
        host = self._host(decision)
        if host.has_copy(self._view.model, stage.index) or ("keep", stage.index, host.id) in self._named:
            self._refuse(decision, f"host {host.id} has a copy of stage {stage.index} already")
        self._named.add(("keep", stage.index, host.id))
        self._host_bytes[host.id] -= stage.bytes
        if self._host_bytes[host.id] < 0:
            self._refuse(
                decision, f"host {host.id} lacks {-self._host_bytes[host.id]} bytes for the decision"
            )

    def _evicted(self, decision: Any) -> None:
        host = self._host(decision)
        for copy in host.copies:
            if (copy.model, copy.stage) == (decision.model, decision.stage):
                read = copy.model == self._view.model and (host.id, copy.stage) in self._read
                self._host_bytes[host.id] += 0 if copy.in_use or read else copy.bytes
                break
        else:
            stage = shown(decision.stage)
            self._refuse(decision, f"host {host.id} has no copy of stage {stage} of {shown(decision.model)}")
        if ("evict", host.id, decision.model, decision.stage) in self._named:
            self._refuse(decision, "the copy is named twice")
        self._named.add(("evict", host.id, decision.model, decision.stage))

    def _host(self, decision: Any) -> StageHostView:
        if type(decision.host) is not int or decision.host not in self._hosts:
            self._refuse(decision, f"host {shown(decision.host)} does not exist")
        return self._hosts[decision.host]

    def _marked(self, decision: Any) -> None:
        stages = decision.stages
        if type(stages) is not tuple or any(
            type(stage) is not int or stage not in self._stages for stage in stages
        ):
            self._refuse(decision, f"stages must be a tuple of stages of {self._view.model}")
        if len({*stages}) < len(stages):
            self._refuse(decision, "a stage is named twice")

    def _cut(self, decision: Any) -> None:
        cut, view = self._view.cut, self._view
        if cut is None or cut.coming:
            why = "another cut is in progress" if cut else "pipeline.recut=none"
            self._refuse(decision, f"{view.model} cannot be cut anew: {why}")
        begins, counts, gpus = decision.begins, decision.replicas, decision.gpus
        if not _are_ints(begins) or not _are_ints(counts) or not _are_ints(gpus):
            self._refuse(decision, "begins, replicas and gpus must be tuples of int")
        ends = (*begins[1:], cut.layers)
        if begins[:1] != (0,) or any(
            not 0 < end - begin <= cut.most_layers for begin, end in zip(begins, ends)
        ):
            rule = f"stages must begin at 0 and have 1 to {cut.most_layers} of {cut.layers} layers"
            self._refuse(decision, f"{rule}, not {shown(begins)}")
        if begins == tuple([stage.layers[0] for stage in view.stages]):
            self._refuse(decision, "this is the present cut")
        if len(counts) != len(begins) or min(counts) < 1 or sum(counts) > view.max_replicas:
            self._refuse(
                decision, f"replicas must be 1 or more of each stage and at most {view.max_replicas} in all"
            )
        if len({*gpus}) < len(gpus) or any(gpu not in self._host_of_gpu for gpu in gpus):
            self._refuse(decision, "gpus must be GPUs of the view, each once")
        there = {stage.layers for stage in view.stages}
        new = sum([count for begin, end, count in zip(begins, ends, counts) if (begin, end) not in there])
        if gpus and len(gpus) != new:
            self._refuse(decision, f"gpus must name {new} GPUs, one for each replica of a new stage")

    def _refuse(self, answer: object, why: str) -> NoReturn:
        raise refused(self._policy, SCALE, answer, why)


def _are_ints(value: Any) -> bool:
    return type(value) is tuple and all(type(number) is int for number in value)
