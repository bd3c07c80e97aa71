"""Starts and stops instances by waking servers and putting them to sleep: AllocateGpus to ReleaseGpus."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from realexec.http.server_state import ServerState, check_gpus
from realexec.http.sleeping import put_to_sleep, wake
from realexec.http.stream import Refused
from serving.vocabulary.actions import AllocateGpus, Load, ReleaseGpus, StopLoad
from serving.vocabulary.events import Event, Loaded, LoadStopped


class SleepMode:
    """``tell``: callback that receives facts. ``slept``, ``woken``: how often, since the run began."""

    def __init__(
        self, states: Sequence[ServerState], timeout_s: float, tell: Callable[[Event], None]
    ) -> None:
        self._states, self._timeout_s, self._tell = states, timeout_s, tell
        self._locks = [asyncio.Lock() for _ in states]  # one sleep or wake request at a time per server
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self.slept = self.woken = 0

    async def open(self, awake: Iterable[int]) -> None:
        """Put all servers but these to sleep before the run begins. Raises OSError or Refused."""
        for number in sorted(set(range(len(self._states))) - set(awake)):
            await put_to_sleep(self._states[number].server, self._timeout_s)
            self._states[number].asleep = True

    @property
    def loading(self) -> bool:
        """Whether a server wakes now."""
        return bool(self._loads)

    def allocate(self, action: AllocateGpus) -> None:
        """Check that replica n gets the GPUs of server n."""
        check_gpus(action)

    def load(self, action: Load) -> None:
        """Wake the server. Its parameters come from the memory of its own host."""
        self._loads[action.load] = asyncio.create_task(self._wake(action))

    async def _wake(self, action: Load) -> None:
        ((_, number),) = action.targets
        state, cause = self._states[number], ""
        async with self._locks[number]:
            if state.lost:
                cause = "the server is lost"
            else:
                try:
                    await wake(state.server, self._timeout_s)
                except (OSError, Refused) as error:
                    cause = str(error) or type(error).__name__
        del self._loads[action.load]
        assert action.layers is not None
        first, last = action.layers
        if cause:
            self._tell(LoadStopped(action.load, 0, 0, cause, first))
            return
        state.asleep = False
        self.woken += 1
        self._tell(Loaded(action.load, 0, last - first, True, first))

    def stop(self, action: StopLoad) -> None:
        """Stop waiting for a load."""
        task = self._loads.pop(action.load, None)
        if task is not None:
            task.cancel()
            self._tell(LoadStopped(action.load, 0, 0, action.reason))

    def release(self, action: ReleaseGpus) -> None:
        """Put the server to sleep: it has no requests of this run any more."""
        task = asyncio.create_task(self._sleep(action.replica))
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _sleep(self, number: int) -> None:
        state = self._states[number]
        async with self._locks[number]:
            if state.lost:
                return
            state.asleep = True
            with suppress(OSError, Refused):  # a server that fails to sleep gets no requests meanwhile
                await put_to_sleep(state.server, self._timeout_s)
                self.slept += 1

    async def close(self) -> None:
        """Wake all servers, as they were found."""
        for task in self._loads.values():
            task.cancel()
        await asyncio.gather(*self._loads.values(), *self._others, return_exceptions=True)
        for state in self._states:
            if state.asleep and not state.lost:
                with suppress(OSError, Refused):
                    await wake(state.server, self._timeout_s)
