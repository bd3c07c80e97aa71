"""A schedule recorded from vLLM, and ours of the same requests."""

from typing import Any

from policies.batching import ChunkedPrefill
from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.vocabulary.actions import Action, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

STEP_NS = 10


def v1_engine(settings: dict[str, Any], named: bytes | None = None) -> Engine:
    """Ours with these settings."""
    blocks, block_tokens = settings["num_gpu_blocks"] - 1, settings["block_tokens"]
    replica = Replica(
        id=0,
        model="m",
        layers=LayerRange(0, 1),
        gpus=(0,),
        kv_blocks=blocks,
        block_tokens=block_tokens,
        watermark_blocks=0,
        prefix_caching=settings["prefix_caching"],
    )
    batcher = ChunkedPrefill(
        settings["max_num_seqs"], settings["max_num_batched_tokens"], settings["reserve_full_isl"]
    )
    return Engine(replica, batcher, coalesce=False, asynchronous=settings["asynchronous"], named=named)


class Schedule:
    """An engine in exact mode, and a world that gives every sequence of a step one token."""

    def __init__(self, case: dict[str, Any], engine: Engine | None = None) -> None:
        self.engine = v1_engine(case["settings"]) if engine is None else engine
        self.requests = case["requests"]
        self.hits: dict[int, int] = {}  # tokens found at a request's first admission
        self.free_blocks: list[int] = []  # after each step was chosen
        self.to_come = list(range(len(self.requests)))
        self.missing = [request[2] for request in self.requests]

    def steps(self) -> list[list[Any]]:
        """(batch, preempted, finished) of every step."""
        steps, number = [], 0
        actions = self.arrive(0)
        while self.to_come or self.engine.state is not EngineState.IDLE:
            if self.engine.state is EngineState.IDLE:
                number = max(number, self.requests[self.to_come[0]][0])
                actions = self.arrive(number)
            victims = [action.request for action in actions if isinstance(action, Preempt)]
            batch, finished = self.compute(actions)
            steps.append([batch, victims, finished])
            actions = self.arrive(number + 1)
            self.engine.ran(Ran(0, 0, 1, tuple(sorted(finished)), False, number * STEP_NS), actions)
            number += 1
        return steps

    def arrive(self, number: int) -> list[Action]:
        """Hand over requests that came before step ``number`` is chosen; an idle engine sees them at once."""
        actions: list[Action] = []
        coming = [id for id in self.to_come if self.requests[id][0] <= number]
        del self.to_come[: len(coming)]
        for id in coming:
            arrival, prompt_tokens, max_tokens, *shared = self.requests[id]
            arrival_ns = max(0, arrival * STEP_NS - STEP_NS // 2)
            prefix = tuple([(owner, end) for owner, end in shared[0]]) if shared else ()
            request = Request(id, arrival_ns, prompt_tokens, max_tokens, "m", shared_prefix=prefix)
            if self.engine.state is EngineState.IDLE and id != coming[-1]:
                self.engine.waiting.append(Progress(request))
            else:
                self.engine.enqueue(request, actions)
        return actions

    def compute(self, actions: list[Action]) -> tuple[list[list[int]], list[int]]:
        """One step: what it computes, and which requests have all tokens after it."""
        (run,) = [action for action in actions if isinstance(action, Run)]
        engine, chunks = self.engine, {chunk[0]: list(chunk) for chunk in run.chunks}
        taken = engine.ledger.step_blocks() if run.decode else 0
        self.free_blocks.append(engine.ledger.free_blocks - taken)
        for id, start, _ in run.chunks:
            self.hits.setdefault(id, start)
        batch, finished = [], []
        for id, progress in engine.running.items():
            if id in chunks:
                batch.append(chunks[id])
                samples = sum(chunks[id][1:]) == progress.known_tokens
            elif run.decode and engine.ledger.decodes(id):
                batch.append([id, engine.ledger.context_tokens(id) - 1, 1])
                samples = True
            else:
                continue  # it has finished, and still holds its seat
            self.missing[id] -= samples
            if samples and not self.missing[id]:
                finished.append(id)
        return batch, finished


def in_any_order(steps: list[list[Any]]) -> list[list[Any]]:
    """The order in which several requests finish in one step is not compared."""
    return [[batch, preempted, sorted(finished)] for batch, preempted, finished in steps]


def recorded(case: dict[str, Any]) -> list[list[Any]]:
    """vLLM's steps. A victim that had its last token in flight is none to us: it lost nothing."""
    steps = []
    ended: set[int] = set()
    for batch, preempted, finished in case["steps"]:
        steps.append([batch, [id for id in preempted if id not in ended], finished])
        ended |= set(finished)
    return steps
