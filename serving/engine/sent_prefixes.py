"""What a router may assume to be in the KV memory of replicas: the prompts that it sent there.

No engine is asked. What an engine holds now depends on how far its run has come, which the controller learns
only with the next report (docs/decisions/0005); what was sent where changes with requests alone. Routers
without reports from the engines do the same (NVIDIA Dynamo with ``--no-kv-events``; the estimating prefix
scorer of the Kubernetes Gateway API Inference Extension).
"""

from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


class SentPrefixes:
    """Prompts sent to one model's replicas; beyond a replica's KV memory the least recently used are
    forgotten.

    A prompt is stored as the parts that it shares with others and its own part (``Request.shared_prefix``),
    so a text is stored once: by owner, where its own tokens begin and end.
    """

    __slots__ = ("_block_tokens", "_held_tokens", "_parts", "_prompt_tokens", "_room_tokens")

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, tuple[int, int]]] = {}  # the least recently used first
        self._held_tokens: dict[int, int] = {}
        self._room_tokens: dict[int, int] = {}
        self._block_tokens: dict[int, int] = {}
        self._prompt_tokens: dict[int, int] = {}

    def add(self, replica: Replica) -> None:
        """Add a replica that takes requests; nothing is known to be in its memory."""
        id = replica.id
        self._parts[id] = {}
        self._held_tokens[id] = 0
        self._room_tokens[id] = replica.kv_blocks * replica.block_tokens if replica.prefix_caching else 0
        self._block_tokens[id] = replica.block_tokens
        self._prompt_tokens.setdefault(id, 0)

    def retire(self, replica: int) -> None:
        """Stop tracking prompts of a replica that takes no more requests."""
        del self._parts[replica], self._held_tokens[replica]

    def lose(self, replica: int) -> None:
        """Forget a replica that is lost, after it was retired."""
        del self._prompt_tokens[replica]

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of the replica's unfinished requests."""
        return self._prompt_tokens[replica]

    def assigned(self, replica: int, request: Request) -> None:
        """Record a request sent to a replica."""
        self._prompt_tokens[replica] += request.prompt_tokens
        parts = self._parts.get(replica)
        if parts is None or not self._room_tokens[replica]:
            return
        starts, start = [], 0
        for owner, end in request.shared_prefix:
            starts.append((owner, start, end))
            start = end
        if start < request.prompt_tokens:
            starts.append((request.id, start, request.prompt_tokens))
        held = self._held_tokens[replica]
        for owner, start, end in reversed(starts):  # the most shared part counts as used last
            before = parts.pop(owner, None)
            if before is not None:
                held -= before[1] - before[0]
                end = max(end, before[1])
            parts[owner] = start, end
            held += end - start
        while held > self._room_tokens[replica]:
            start, end = parts.pop(next(iter(parts)))
            held -= end - start
        self._held_tokens[replica] = held

    def departed(self, replica: int, request: Request) -> None:
        """Record that a request left a replica, finished or failed; its prompt stays in memory."""
        self._prompt_tokens[replica] -= request.prompt_tokens

    def cached_tokens(self, replica: int, request: Request) -> int:
        """Tokens at the start of its prompt that were sent there before, in whole blocks.

        The last prompt token does not count: it is always computed, since its output is the next token.
        """
        parts, found = self._parts[replica], 0
        for owner, end in request.shared_prefix:
            held = parts.get(owner)
            if held is None or held[1] < end:
                found = found if held is None else max(found, held[1])
                break
            found = end
        block = self._block_tokens[replica]
        return min(found, request.prompt_tokens - 1) // block * block
