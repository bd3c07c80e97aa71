"""The metrics of one model as a scaler in production has them: scraped at intervals, averaged and late.

A scaler with ``reads_signals = True`` finds them in ``ScalingView.signals``. Names of vLLM's metrics are in
docs/reference/SCALERS.md.
"""

from typing import Final

from serving.vocabulary.fact import fact
from serving.vocabulary.measured import NOTHING, Measured
from serving.vocabulary.replica import Role

NS_PER_S: Final = 1e9


@fact
class InstanceSignals:
    """One instance that takes requests, at the scrape.

    ``waiting``: requests in its own queue. ``running``: requests of its batch. ``kv_use``: share of its KV
    memory in use, 0 to 1. ``prompt_tokens``: of its prompts, not computed yet. ``ready_ns``: when it began to
    serve. ``in_flight_tokens``: whole prompts of its requests that have no token yet; at a prefill instance
    also those whose KV a decode instance has not received.
    """

    id: int
    role: Role
    waiting: int
    running: int
    kv_use: float
    prompt_tokens: int
    ready_ns: int
    in_flight_tokens: int = 0


@fact
class StartingSignals:
    """One instance that loads.

    ``since_ns``: when its load was decided. ``left_s``: the time until it serves, if its load takes as long
    as the model's loads before it did; None before the first has ended.
    """

    id: int
    role: Role
    since_ns: int
    left_s: float | None


@fact
class RoleMeans:
    """Means over the scrapes of a window, of all serving instances of a role together.

    ``instances``: how many served. ``waiting``: requests in their queues, and those at no instance yet if the
    role computes prompts. ``running``: requests in their batches. ``kv_use``: share of all their KV memory, 0
    to 1. ``prompt_tokens``: not computed yet.
    """

    role: Role
    instances: float
    waiting: float
    running: float
    kv_use: float
    prompt_tokens: float


@fact
class Signals:
    """The newest scrape that has reached the scaler.

    ``scraped_ns``: when it was taken. ``window_ns``: the time before it over which rates, ``means`` and
    ``measured`` were taken; shorter at the start of a run. ``requests``, ``prompt_tokens``: arrivals of the
    window. ``queued``, ``queued_tokens``: requests at no instance yet, and their prompts. ``oldest_wait_s``:
    how long the first request of all queues has waited. ``prefix_hit_share``: share of the prompt tokens
    looked up in prefix caches that were found. ``instances``: those that take requests, by id. ``starting``:
    those that load, by id. ``means``: means of each role. ``measured``: latencies, and lengths of *finished*
    requests, in the window. ``requests_per_s``, ``prompt_tokens_per_s``: arrivals. ``output_tokens_per_s``,
    ``mean_output_tokens``: of the requests that finished. ``mean_prompt_tokens``: of those that arrived.
    """

    scraped_ns: int
    window_ns: int
    requests: int
    prompt_tokens: int
    queued: int
    oldest_wait_s: float
    prefix_hit_share: float
    instances: tuple[InstanceSignals, ...]
    starting: tuple[StartingSignals, ...]
    means: tuple[RoleMeans, ...]
    measured: Measured = NOTHING
    queued_tokens: int = 0

    @property
    def requests_per_s(self) -> float:
        """Arrivals per second."""
        return self._per_s(self.requests)

    @property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens that arrived per second."""
        return self._per_s(self.prompt_tokens)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second of the requests that finished."""
        return self._per_s(self.measured.output_tokens)

    @property
    def mean_prompt_tokens(self) -> float | None:
        """Mean prompt length of the requests that arrived; None without any."""
        return self.prompt_tokens / self.requests if self.requests else None

    @property
    def mean_output_tokens(self) -> float | None:
        """Mean output length of the requests that finished; None without any."""
        measured = self.measured
        return measured.output_tokens / measured.finished if measured.finished else None

    def of_role(self, role: Role) -> list[InstanceSignals]:
        """The instances of a role that take requests, by id."""
        return [instance for instance in self.instances if instance.role == role]

    def mean_of(self, role: Role) -> RoleMeans:
        """The means of a role."""
        return next(mean for mean in self.means if mean.role == role)

    def _per_s(self, amount: int) -> float:
        return amount * NS_PER_S / self.window_ns if self.window_ns else 0.0
