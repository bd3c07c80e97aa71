"""What servers measure of their requests, for scalers that read metrics: of both worlds."""

from collections import Counter
from collections.abc import Callable, Iterable

from serving.vocabulary.measured import LengthCount, Measured, latency_of, length_bound
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request

# Requests that have not ended, each with the time of its first token; a time below 0: it has none.
FirstTokens = Callable[[], Iterable[tuple[Request, int]]]


class MeasuredRequests:
    """Passes on what a recorder is told, and keeps the requests that finished since the oldest query.

    Implements serving.vocabulary.recorder.Recorder.
    """

    def __init__(self, recorder: Recorder, first_tokens: FirstTokens) -> None:
        self._recorder, self._first_tokens = recorder, first_tokens
        self.gaps, self.busy = recorder.gaps, recorder.busy
        self.refused, self.failed = recorder.refused, recorder.failed
        # By model: finish time, arrival, first token, prompt and output tokens of finished requests.
        self._finished: dict[str, list[tuple[int, int, int, int, int]]] = {}

    # Positional, like that of the recorder.
    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """Record a request that produced its last token."""
        row = finish_ns, request.arrival_ns, first_token_ns, request.prompt_tokens, output_tokens
        self._finished.setdefault(request.model, []).append(row)
        self._recorder.finished(request, output_tokens, first_token_ns, finish_ns, replica, preemptions)

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """See ``serving.vocabulary.step_counts.StepSource``; later queries of a model begin no earlier."""
        rows = [row for row in self._finished.get(model, ()) if row[0] >= since_ns]
        self._finished[model] = rows
        ttft_ns = [first - arrival for _, arrival, first, _, _ in rows if since_ns <= first < until_ns]
        ttft_ns += [
            first - request.arrival_ns
            for request, first in self._first_tokens()
            if since_ns <= first < until_ns and request.model == model
        ]
        ended = [row for row in rows if row[0] < until_ns]
        return Measured(
            latency_of(ttft_ns),
            latency_of([(finish - first) // (n - 1) for finish, _, first, _, n in ended if n > 1]),
            finished=len(ended),
            prompt_tokens=sum([prompt for _, _, _, prompt, _ in ended]),
            output_tokens=sum([output for _, _, _, _, output in ended]),
            lengths=_lengths([(prompt, output) for _, _, _, prompt, output in ended]),
        )


def _lengths(of_requests: list[tuple[int, int]]) -> tuple[LengthCount, ...]:
    counts = Counter([(length_bound(prompt), length_bound(output)) for prompt, output in of_requests])
    return tuple([LengthCount(prompt, output, counts[prompt, output]) for prompt, output in sorted(counts)])
