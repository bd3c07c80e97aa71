"""One engine told its facts, and the actions expected of it, in short. Memory is 16 blocks of 4 tokens."""

from policies.batching import ChunkedPrefill
from serving.engine.engine import Engine
from serving.engine.progress import Order, Progress
from serving.protocols.batch import Batcher
from serving.vocabulary.actions import Action, Chunk, Interrupt, JoinBatch, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

ID = 7


class Script:
    """One engine and the events it is given."""

    def __init__(
        self,
        batcher: Batcher,
        blocks: int = 16,
        block_tokens: int = 4,
        watermark: int = 0,
        coalesce: bool = True,
        loaded: bool = True,
        asynchronous: bool = False,
        order: Order = "fcfs",
    ) -> None:
        replica = Replica(
            id=ID,
            model="m",
            layers=LayerRange(0, 2),
            gpus=(0,),
            kv_blocks=blocks,
            block_tokens=block_tokens,
            watermark_blocks=watermark,
        )
        self.engine = Engine(
            replica, batcher, coalesce=coalesce, asynchronous=asynchronous, loaded=loaded, order=order
        )

    def arrive(self, request: int, prompt_tokens: int, priority: int = 0) -> list[Action]:
        actions: list[Action] = []
        self.engine.enqueue(Request(request, 0, prompt_tokens, 30, "m", priority), actions)
        return actions

    def ran(
        self, steps: int, *finished: int, goes_on: bool = False, epoch: int | None = None
    ) -> list[Action]:
        actions: list[Action] = []
        answered = self.engine.epoch if epoch is None else epoch
        self.engine.ran(Ran(ID, answered, steps, finished, goes_on), actions)
        return actions

    def ready(self) -> list[Action]:
        actions: list[Action] = []
        self.engine.ready(actions)
        return actions

    def lose(self, cause: str = "host gone") -> tuple[list[int], list[Action]]:
        actions: list[Action] = []
        return self.engine.lose(actions, cause), actions

    def join_batch(self, request: int, prompt_tokens: int) -> list[Action]:
        """The KV of a prompt that was computed elsewhere has come."""
        actions, progress = list[Action](), Progress(Request(request, 0, prompt_tokens, 30, "m"))
        progress.computed = prompt_tokens
        self.engine.reserve(request, prompt_tokens)
        self.engine.join_batch([progress], actions)
        return actions

    def queue(self) -> list[int]:
        return [progress.id for progress in self.engine.waiting]

    @property
    def free(self) -> int:
        return self.engine.ledger.free_blocks


def chunked(max_num_seqs: int = 4, max_num_batched_tokens: int = 8) -> ChunkedPrefill:
    return ChunkedPrefill(max_num_seqs, max_num_batched_tokens)


def run(
    chunks: tuple[Chunk, ...], decode: bool, max_steps: int, until_finish: bool | None, reason: str
) -> Run:
    """Unless told otherwise a run of several steps is open to arrivals and goes on past a finish."""
    return Run(
        ID, 0, chunks, decode, max_steps, max_steps == 1 if until_finish is None else until_finish, reason
    )


def chunk_run(*chunks: Chunk, max_steps: int = 1, until_finish: bool | None = None) -> Run:
    return run(chunks, True, max_steps, until_finish, "chunked")


def prefill_run(*chunks: Chunk, max_steps: int = 1) -> Run:
    return run(chunks, False, max_steps, None, "prefill")


def decode_run(max_steps: int, until_finish: bool | None = None) -> Run:
    return run((), True, max_steps, until_finish, "decode")


def preempt(request: int) -> Preempt:
    return Preempt(ID, request, "no free KV block")


def adopted(*requests: int) -> JoinBatch:
    return JoinBatch(ID, requests, "their KV has come")


ONE_MORE = run((), True, 1, None, "decode after preemption")
INTERRUPT = Interrupt(ID, "arrival")
