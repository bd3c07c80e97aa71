"""The requests of a run, in the order in which they arrive."""

import numpy as np

from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.errors import UserError
from serving.vocabulary.request import Request

# Prompts of random token ids: traces contain a prompt's length, not its text.


def prompt_ids(seed: int, request: int, tokens: int, vocab_size: int) -> tuple[int, ...]:
    """The ``tokens`` prompt token ids of a request; they depend on the arguments only."""
    return tuple(np.random.default_rng([seed, request]).integers(vocab_size, size=tokens).tolist())


class Arrivals:
    """The next arrival, read one ahead of time; in a closed loop, as soon as a client is free."""

    def __init__(self, requests: Requests, seed: int, vocab_size: int) -> None:
        self._clients = requests if isinstance(requests, ClosedLoop) else None
        self._requests = iter(()) if isinstance(requests, ClosedLoop) else iter(requests)
        self._seed = seed
        self._vocab_size = vocab_size
        self.request: Request | None = None
        self.due_ns = 0
        self.advance()

    def advance(self) -> None:
        """Read the next request; ``request`` is None at the end, or while no client is free."""
        self._taken = next(self._requests, None) if self._clients is None else self._clients.take()
        self.request, output_tokens = self._taken or (None, 0)
        if self.request is None:
            return
        if self._clients is None and self.request.arrival_ns < self.due_ns:
            raise UserError(f"Request {self.request.id} arrives before the one ahead of it; sort by arrival.")
        if min(output_tokens, self.request.prompt_tokens) < 1:
            raise UserError(f"Request {self.request.id} must have at least one prompt and one output token.")
        self.due_ns = self.request.arrival_ns
        self.output_tokens = min(output_tokens, self.request.max_new_tokens)
        # Made ahead of time, so that making it does not delay the arrival.
        self.prompt = prompt_ids(self._seed, self.request.id, self.request.prompt_tokens, self._vocab_size)

    def in_flight(self, now_ns: int, requests: int) -> None:
        """Report how many arrived requests have not ended; free clients of a closed loop then send more."""
        if self._clients is None:
            return
        self._clients.in_flight(now_ns, requests + (self.request is not None))
        if self._taken is None or self._clients.is_sooner(self._taken):
            self.advance()
