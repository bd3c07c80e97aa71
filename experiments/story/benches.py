"""What is kept of one request, of one instance and of one report while a journal is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.vocabulary.actions import Chunk, Run
from serving.vocabulary.request import Request

Stage = Literal["waiting", "prompt", "handed over", "joining", "decoding", "ended"]


@dataclass(slots=True)
class RequestSoFar:
    """How far one request is. ``made``: its tokens, without those of the decode steps it is in; ``begun``:
    its tokens when these, or its last ones, began; ``since``: steps of the instance at that time.
    ``replica``: whose it is, None while it is nobody's.
    """

    request: Request
    replica: int | None = None
    stage: Stage = "waiting"
    made: int = 0
    begun: int = 0
    since: int = 0

    @property
    def known_tokens(self) -> int:
        """What must be in the KV cache before it decodes; stands still while it does."""
        return self.request.prompt_tokens + self.made


@dataclass(slots=True)
class Bench:
    """One instance: the run in progress, its prompts that no report has told of, who decodes here."""

    epoch: int = 0
    run: Run | None = None
    run_ns: int = 0
    chunks: tuple[Chunk, ...] = ()
    steps: int = 0  # in which its residents decoded
    decoding: set[int] = field(default_factory=set)
    joins: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """What a ``Ran`` means. ``run`` is None for one of an epoch that is over; of a ``Lost``: what was cut.

    ``computed``: the prompt tokens of its first step; ``completed``: whose prompts these end. ``joined``: who
    joined, after how many of its steps. ``decoding``: how many decoded when it was made.
    """

    run: Run | None
    began_ns: int
    computed: tuple[Chunk, ...] = ()
    completed: tuple[int, ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    decoding: int = 0
