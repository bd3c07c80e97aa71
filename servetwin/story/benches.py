"""State of one request, one instance and one report while a journal is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.vocabulary.actions import Chunk, Run
from serving.vocabulary.request import Request

Stage = Literal["waiting", "prompt", "handed over", "joining", "decoding", "ended"]


@dataclass(slots=True, kw_only=True)
class RequestSoFar:
    """The progress of one request. ``made``: its tokens, without those of its current decode steps;
    ``begun``: ``made`` when its current or last decode steps began; ``since``: the instance's steps at that
    time. ``replica``: the instance that has the request, None if none has.
    """

    request: Request
    replica: int | None = None
    stage: Stage = "waiting"
    made: int = 0
    begun: int = 0
    since: int = 0

    @property
    def known_tokens(self) -> int:
        """Tokens that must be in the KV cache before the request decodes; constant while it does."""
        return self.request.prompt_tokens + self.made


@dataclass(slots=True, kw_only=True)
class Bench:
    """One instance: its current run, the run's prompts not yet reported, the requests that decode here."""

    epoch: int = 0
    run: Run | None = None
    run_ns: int = 0
    chunks: tuple[Chunk, ...] = ()
    steps: int = 0  # with decodes of its requests
    decoding: set[int] = field(default_factory=set)
    joins: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The meaning of a ``Ran``. ``run`` is None for an earlier epoch's; for a ``Lost``: the interrupted run.

    ``computed``: the prompt tokens of its first step; ``completed``: requests whose prompts end there.
    ``joined``: request -> steps before it joined. ``decoding``: requests that decoded at the report.
    """

    run: Run | None
    began_ns: int
    computed: tuple[Chunk, ...] = ()
    completed: tuple[int, ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    decoding: int = 0
