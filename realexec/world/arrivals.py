"""The requests of a run, in the order in which they arrive."""

from collections.abc import Iterable, Iterator

from realexec.prompts import prompt_ids
from serving.vocabulary.errors import UserError
from serving.vocabulary.request import Request


class Arrivals:
    """The next arrival, read one ahead of time."""

    def __init__(self, requests: Iterable[tuple[Request, int]], seed: int, vocab_size: int) -> None:
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._seed = seed
        self._vocab_size = vocab_size
        self.request: Request | None = None
        self.due_ns = 0
        self.advance()

    def advance(self) -> None:
        """Read the next request; ``request`` is None at the end."""
        self.request, output_tokens = next(self._requests, (None, 0))
        if self.request is None:
            return
        if self.request.arrival_ns < self.due_ns:
            raise UserError(f"Request {self.request.id} arrives before the one ahead of it; sort by arrival.")
        if min(output_tokens, self.request.prompt_tokens) < 1:
            raise UserError(f"Request {self.request.id} must have at least one prompt and one output token.")
        self.due_ns = self.request.arrival_ns
        self.output_tokens = min(output_tokens, self.request.max_new_tokens)
        # Made ahead of time, so that its cost does not delay the arrival.
        self.prompt = prompt_ids(self._seed, self.request.id, self.request.prompt_tokens, self._vocab_size)
