"""The unit of every benchmark: CPU time of one SimPy timeout in one generator process, in the same run."""

from collections.abc import Generator
from time import process_time

from simpy import Environment, Event

TIMEOUTS = 200_000


def raw_timeout_s() -> float:
    """CPU seconds of one timeout; the best of three, because noise only adds."""
    return min(_measure() for _ in range(3))


def _measure() -> float:
    env = Environment()

    def clock() -> Generator[Event, None, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(clock())
    started = process_time()
    env.run()
    return (process_time() - started) / TIMEOUTS
