"""Requests that go round the stages of a language model together, each on the same replicas until it ends."""

from collections import deque

from serving.vocabulary.actions import Chunk, Span
from serving.vocabulary.request import Request


class PathBatch:
    """``path``: a replica of each stage, of one that is split two. ``spans``: the layers that each runs;
    empty: all its own. ``decoding``: requests that get a token in each round.

    ``prompts``: [request, prompt tokens computed] of those whose prompt is not computed whole. ``flying``:
    the chunks of the round in progress. ``rounds``: that ended.
    """

    __slots__ = ("_since", "decoding", "flying", "id", "path", "prompts", "rounds", "spans")

    def __init__(self, id: int, path: tuple[int, ...], spans: tuple[Span, ...] = ()) -> None:
        self.id = id
        self.path, self.spans = path, spans
        self.decoding: dict[int, Request] = {}
        self.prompts: deque[tuple[Request, int]] = deque()
        self.flying: tuple[Chunk, ...] = ()
        self.rounds = 0
        self._since: dict[int, int] = {}  # of those that decode, the rounds before the one of the first token

    @property
    def size(self) -> int:
        """Its requests."""
        return len(self.decoding) + len(self.prompts)

    def members(self) -> list[Request]:
        """All of them."""
        return [*self.decoding.values(), *(request for request, _ in self.prompts)]

    def admit(self, request: Request) -> None:
        """A request joins with its next round; its prompt comes behind those that are here."""
        self.prompts.append((request, 0))

    def next_chunks(self, token_budget: int) -> tuple[Chunk, ...]:
        """Prompt tokens of its next round, in the order in which requests joined."""
        left, found = token_budget - len(self.decoding), list[Chunk]()
        for request, computed in self.prompts:
            if left <= 0:
                break
            tokens = min(left, request.prompt_tokens - computed)
            found.append((request.id, computed, tokens))
            left -= tokens
        self.flying = tuple(found)
        return self.flying

    def kv_tokens(self) -> dict[int, int]:
        """Of each request, the tokens that have KV: not the last one that was sampled."""
        found = {one.id: computed for one, computed in self.prompts}
        for request in self.decoding.values():
            found[request.id] = request.prompt_tokens + self.rounds - self._since[request.id] - 1
        return found

    def ran(self, rounds: int, finished: tuple[int, ...]) -> list[tuple[Request, int]]:
        """So many have ended, with their chunks; returns who has all tokens, and how many these are."""
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
        return [(self.decoding.pop(one), self.rounds - self._since.pop(one)) for one in finished]

    def prompt_tokens_left(self) -> int:
        """Of prompts that are not computed."""
        return sum([request.prompt_tokens - computed for request, computed in self.prompts])
