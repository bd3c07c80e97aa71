"""Starts and stops instances by a launcher of servers: ``Load`` to ``ReleaseGpus``."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from realexec.http.instance_launcher import InstanceLauncher, NotReady, server_of
from realexec.http.server_state import ServerState, check_gpus
from serving.vocabulary.actions import AllocateGpus, Load, ReleaseGpus, StopLoad
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event, Loaded, LoadStopped


class StartedServers:
    """``tell``: callback that receives facts. ``serves``: is called with each server that starts to serve.

    ``fault``: is called with the error after which no start can succeed.
    """

    def __init__(
        self,
        states: Sequence[ServerState],
        launcher: InstanceLauncher,
        *,
        tell: Callable[[Event], None],
        serves: Callable[[int], None],
        fault: Callable[[Exception], None],
    ) -> None:
        self._states, self._launcher = states, launcher
        self._tell, self._serves, self._fault = tell, serves, fault
        self._locks = [asyncio.Lock() for _ in states]  # a server stops before its successor starts
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._stops: set[asyncio.Task[None]] = set()
        self.slept = self.woken = 0  # none sleeps

    @property
    def loading(self) -> bool:
        """Whether a server starts now."""
        return bool(self._loads)

    async def open(self, awake: Iterable[int]) -> None:
        """Note which servers run from the beginning."""
        for number in set(range(len(self._states))) - set(awake):
            self._states[number].asleep = True

    def allocate(self, action: AllocateGpus) -> None:
        """Check that replica n gets the GPUs of server n."""
        check_gpus(action)

    def load(self, action: Load) -> None:
        """Start the server."""
        self._loads[action.load] = asyncio.create_task(self._started(action))

    async def _started(self, action: Load) -> None:
        ((_, number),) = action.targets
        assert action.layers is not None
        first, last = action.layers
        try:
            async with self._locks[number]:
                await self._launcher.stop(number)  # one that was lost
                await self._launcher.start(number)
        except NotReady as error:
            del self._loads[action.load]
            self._tell(LoadStopped(action.load, 0, 0, str(error), first))
            if self._launcher.gives_up:
                self._fault(UserError(f"a {self._launcher.what} is of no use again and again: {error}"))
            return
        except Exception as error:
            self._fault(error)
            return
        del self._loads[action.load]
        state = self._states[number]
        state.server, state.asleep, state.lost = server_of(self._launcher, number), False, False
        self._serves(number)
        self._tell(Loaded(action.load, 0, last - first, True, first))

    def stop(self, action: StopLoad) -> None:
        """Stop a start; its process is ended."""
        task = self._loads.pop(action.load, None)
        if task is not None:
            task.cancel()
            self._tell(LoadStopped(action.load, 0, 0, action.reason))

    def release(self, action: ReleaseGpus) -> None:
        """End the server: it has no requests of this run any more."""
        self.end(action.replica)

    def end(self, number: int) -> None:
        """End the server's process."""
        self._states[number].asleep = True
        task = asyncio.create_task(self._stopped(number))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _stopped(self, number: int) -> None:
        try:
            async with self._locks[number]:
                await self._launcher.stop(number)
        except Exception as error:
            self._fault(error)

    async def close(self) -> None:
        """End starts under way, and wait for servers that stop; others run on, for the check of tokens."""
        for task in self._loads.values():
            task.cancel()
        await asyncio.gather(*self._loads.values(), *self._stops, return_exceptions=True)
