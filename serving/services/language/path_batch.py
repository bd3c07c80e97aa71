"""A batch of requests that pass the stages of a language model together, on the same replicas."""

from collections import deque

from serving.vocabulary.actions import Chunk, Span
from serving.vocabulary.request import Request


class PathBatch:
    """One batch. ``path``: a replica per stage, or two for a split stage. ``spans``: the layers that each
    runs; empty: all its own. ``decoding``: requests that get a token in each round.

    ``prompts``: [request, prompt tokens computed] of requests whose prompt is not fully computed. ``flying``:
    the chunks of the round in progress. ``rounds``: number of completed rounds.
    """

    __slots__ = ("_since", "decoding", "flying", "id", "path", "prompts", "rounds", "spans")

    def __init__(self, id: int, path: tuple[int, ...], spans: tuple[Span, ...] = ()) -> None:
        self.id = id
        self.path, self.spans = path, spans
        self.decoding: dict[int, Request] = {}
        self.prompts: deque[tuple[Request, int]] = deque()
        self.flying: tuple[Chunk, ...] = ()
        self.rounds = 0
        self._since: dict[int, int] = {}  # by decoding request: rounds completed before the first token's

    @property
    def size(self) -> int:
        """Number of requests in the batch."""
        return len(self.decoding) + len(self.prompts)

    def members(self) -> list[Request]:
        """All requests of the batch."""
        return [*self.decoding.values(), *(request for request, _ in self.prompts)]

    def admit(self, request: Request) -> None:
        """Add a request to the next round; its prompt comes after those already in the batch."""
        self.prompts.append((request, 0))

    def next_chunks(self, token_budget: int) -> tuple[Chunk, ...]:
        """Prompt tokens of the next round, in the order in which the requests joined."""
        left, chunks = token_budget - len(self.decoding), list[Chunk]()
        for request, computed in self.prompts:
            if left <= 0:
                break
            tokens = min(left, request.prompt_tokens - computed)
            chunks.append((request.id, computed, tokens))
            left -= tokens
        self.flying = tuple(chunks)
        return self.flying

    def kv_tokens(self) -> dict[int, int]:
        """By request: the number of tokens that have KV; the last sampled token has none."""
        computed_tokens = {one.id: computed for one, computed in self.prompts}
        for request in self.decoding.values():
            computed_tokens[request.id] = request.prompt_tokens + self.rounds - self._since[request.id] - 1
        return computed_tokens

    def ran(self, rounds: int, finished: tuple[int, ...]) -> list[tuple[Request, int]]:
        """Count completed rounds and their chunks; return each finished request with its output tokens."""
        prompts, before = self.prompts, self.rounds
        self.rounds += rounds
        for _, start, tokens in self.flying:
            request, _ = prompts.popleft()
            if start + tokens == request.prompt_tokens:
                self.decoding[request.id] = request
                self._since[request.id] = before
            else:
                prompts.appendleft((request, start + tokens))
        self.flying = ()
        return [(self.decoding.pop(number), self.rounds - self._since.pop(number)) for number in finished]

    def prompt_tokens_left(self) -> int:
        """Prompt tokens that are not computed yet."""
        return sum([request.prompt_tokens - computed for request, computed in self.prompts])
