"""Step times of an engine that lays each chunk out in its whole prompt, which costs extra time."""

from collections.abc import Callable, Mapping, Sequence

from serving.vocabulary.actions import Chunk
from simcore.replica.lifetime import Lifetime
from simcore.replica.step_times import Pieces, StepTimes


class WholePrompts:
    """``StepTimes`` that depend on the full prompt length of each chunk, including generated tokens."""

    __slots__ = ("_beyond", "_lives", "_rows")

    def __init__(
        self,
        rows: StepTimes,
        beyond: Callable[[int, int, int], int],
        lives: Mapping[int, Lifetime] | None = None,
    ) -> None:
        """``rows``: step times for chunks that are the last of their prompts.

        ``beyond``: called with a chunk's start, its end and the length of its prompt; returns the extra cost
        of the chunk in fixed point. ``lives``: the requests of a run, set by ``within_run``.
        """
        self._rows, self._beyond = rows, beyond
        self._lives: Mapping[int, Lifetime] = {} if lives is None else lives

    def within_run(self, lives: Mapping[int, Lifetime]) -> "WholePrompts":
        """The same step times for the requests of one run."""
        return WholePrompts(self._rows, self._beyond, lives)

    def decode(self, n: int) -> Pieces:
        """As in ``rows``."""
        return self._rows.decode(n)

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A step with prompt chunks. A chunk of a request outside the run is its prompt's last chunk."""
        cost = self._rows.mixed(n, context, chunks, spread)
        for request, start, tokens in chunks:
            life = self._lives.get(request)
            if life is not None:
                known = life.request.prompt_tokens + life.generated
                if start + tokens < known:
                    cost += self._beyond(start, start + tokens, known)
        return cost

    @property
    def skewed(self) -> bool:
        """As in ``rows``."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """As in ``rows``."""
        return self._rows.output_token

    def shift(self, n: int, spread: int) -> int:
        """As in ``rows``."""
        return self._rows.shift(n, spread)


def of_run(rows: StepTimes, lives: Mapping[int, Lifetime]) -> StepTimes:
    """Step times that can look up the prompt lengths of this run."""
    return rows.within_run(lives) if isinstance(rows, WholePrompts) else rows
