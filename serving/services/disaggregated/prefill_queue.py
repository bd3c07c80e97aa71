"""The queue before the prefill instances of a disaggregated model."""

from collections import deque
from collections.abc import Iterable

from serving.engine.engine import Engine
from serving.engine.waiting import line_up
from serving.vocabulary.request import Request


class PrefillQueue:
    """Requests that no instance has yet, in order of arrival. ``by_priority``: higher priorities come first.

    ``max_num_batched_tokens``: the maximum number of prompt tokens in a pass. ``backlog_tokens``: number of
    tokens of all prompts that are not computed yet, including prompts at instances.
    """

    __slots__ = ("_by_priority", "_max_num_batched_tokens", "backlog_tokens", "requests")

    def __init__(self, max_num_batched_tokens: int, by_priority: bool = False) -> None:
        self._max_num_batched_tokens, self._by_priority = max_num_batched_tokens, by_priority
        self.requests: deque[Request] = deque()
        self.backlog_tokens = 0

    def add(self, request: Request) -> None:
        """Queue a request after earlier ones."""
        line_up(self.requests, (request,), self._by_priority)

    def withdraw(self, request: Request) -> None:
        """Take a request back whose client went away."""
        self.requests.remove(request)
        self.backlog_tokens -= request.prompt_tokens

    def next_batch(self, engine: Engine) -> list[Request]:
        """Take from the queue what fits into a pass and into the engine's free memory."""
        batch: list[Request] = []
        ledger, waiting = engine.ledger, self.requests
        tokens, blocks = 0, ledger.free_blocks - ledger.watermark_blocks
        while waiting:
            request = waiting[0]
            tokens += request.prompt_tokens
            blocks -= ledger.blocks_for(request.prompt_tokens)
            if blocks < 0 or (batch and tokens > self._max_num_batched_tokens):
                break
            batch.append(waiting.popleft())
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """Put requests back at the head of the queue; they were never removed from the backlog."""
        self.requests.extendleft(reversed(list(requests)))
