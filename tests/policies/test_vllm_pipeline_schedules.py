"""The engine in pipeline stages schedules as vLLM 0.19.0's own scheduler with a batch queue did.

The cases were drawn, and recorded from its ``Scheduler`` in the loop of ``EngineCore.step_with_batch_queue``
without a model: requests come after so many answered batches. Not recorded are cases in which vLLM preempts a
request that is in flight: here the victims are in no step (docs/explanation/PIPELINE.md).
"""

import gzip
import json
from collections import deque
from pathlib import Path
from typing import Any

from policies.batching import ChunkedPrefill
from serving.engine.pipelined import PipelinedEngine
from serving.vocabulary.actions import Action, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

FILE = Path(__file__).resolve().parents[1] / "data" / "vllm_pipeline_schedules.json.gz"
Step = tuple[list[tuple[int, int, int]], list[int]]


class Played:
    """The engine of a case, with a model that answers the oldest batch."""

    def __init__(self, settings: dict[str, Any], requests: list[tuple[int, int, int]]) -> None:
        replica = Replica(
            id=0,
            model="m",
            layers=LayerRange(0, 4),
            gpus=(0,),
            kv_blocks=settings["num_gpu_blocks"] - 1,
            block_tokens=settings["block_tokens"],
        )
        tokens = settings["max_num_batched_tokens"]
        batcher = ChunkedPrefill(settings["max_num_seqs"], tokens, settings["reserve_full_isl"])
        self.stages = settings["stages"]
        self.engine = PipelinedEngine(
            replica, batcher, stages=self.stages, batch_tokens=tokens, coalesce=False
        )
        self.requests = requests
        self.to_come = deque(enumerate(requests))
        self.members: list[set[int]] = [set() for _ in range(self.stages)]
        self.computed: dict[int, int] = {}
        self.generated = [0] * len(requests)
        self.queue: deque[tuple[int, tuple[tuple[int, int, int], ...], list[int]]] = deque()
        self.steps: list[Step] = []
        self.answers = 0

    def play(self) -> list[Step]:
        while self.to_come or self.queue:
            if self.queue:
                self.answer()
                continue
            self.answers = max(self.answers, self.to_come[0][1][0])
            actions: list[Action] = []
            self.engine.take(self.arriving(), actions)
            self.carry_out(actions)
        return self.steps

    def arriving(self) -> list[Request]:
        found = []
        while self.to_come and self.to_come[0][1][0] <= self.answers:
            id, (_, prompt, output) = self.to_come.popleft()
            found.append(Request(id, 0, prompt, output, "m"))
        return found

    def answer(self) -> None:
        batch, chunks, decodes = self.queue.popleft()
        self.answers += 1
        made = [*decodes]
        for request, start, tokens in chunks:
            if start + tokens == self.requests[request][1] + self.generated[request]:
                made.append(request)
        for request in made:
            self.generated[request] += 1
            self.members[batch].add(request)
        finished = tuple(sorted(one for one in made if self.generated[one] == self.requests[one][2]))
        self.members[batch] -= set(finished)
        for request in self.arriving():
            self.engine.enqueue(request, [])
        counts = tuple(int(one == batch) for one in range(self.stages))
        actions: list[Action] = []
        self.engine.ran(Ran(0, 0, 1, finished, False, -1, (), batch, counts), actions)
        self.carry_out(actions)

    def carry_out(self, actions: list[Action]) -> None:
        preempted = list[int]()
        for action in actions:
            if isinstance(action, Preempt):
                preempted.append(action.request)
                for members in self.members:
                    members.discard(action.request)
            elif isinstance(action, Run):
                decodes = [one for one in self.engine.running if one in self.members[action.micro_batch]]
                parts = [*[(one, self.computed[one], 1) for one in decodes], *action.chunks]
                for request, start, tokens in parts:
                    self.computed[request] = start + tokens
                self.queue.append((action.micro_batch, action.chunks, decodes))
                self.steps.append((sorted(parts), sorted(preempted)))
                preempted = []
        if preempted:
            self.steps.append(([], sorted(preempted)))


def test_schedules_are_those_of_vllm() -> None:
    cases = json.loads(gzip.decompress(FILE.read_bytes()))
    assert len(cases) == 200
    for case in cases:
        recorded = [(sorted(map(tuple, parts)), preempted) for parts, preempted in case["steps"]]
        assert Played(case["settings"], case["requests"]).play() == recorded, case["name"]


def test_the_cases_have_chunks_in_flight_together_full_queues_and_preemptions() -> None:
    cases = json.loads(gzip.decompress(FILE.read_bytes()))
    steps = [step for case in cases for step in case["steps"]]
    assert sum(bool(preempted) for _, preempted in steps) > 10
    assert sum(tokens > 1 and start > 0 for parts, _ in steps for _, start, tokens in parts) > 500
