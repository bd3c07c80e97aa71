"""What a launcher of servers offers to a run, and what is done with it before the run."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from realexec.http.client import Address
from realexec.http.dialects import Wish
from realexec.http.probe import Server, kind_of, model_of, probe
from realexec.http.stream import Refused, tokens_of
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

NOWHERE: Final = Address("http", "127.0.0.1", 9)  # of a server that was not started yet
_FIRST_TOKENS: Final = 3
_PROBE_S: Final = 60.0


class NotReady(Exception):
    """A server that was started does not serve."""


class InstanceLauncher(Protocol):
    """Starts and ends servers by number. ``what``: one of them in messages.

    ``like``: server 0 as probed, which all others are like; None until then. ``servers``: how many there are
    at most. ``model``, ``key``: see ``probe``.
    """

    what: str
    servers: int
    model: str | None
    key: str | None
    like: Server | None

    @property
    def running(self) -> Collection[int]:
        """The servers that were started and not stopped."""

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""

    def address(self, number: int) -> Address:
        """Where a server is, or was last; ``NOWHERE`` if it was never started."""

    async def start(self, number: int) -> None:
        """Start a server and wait until it has answered a request. Raises NotReady if it does not."""

    async def stop(self, number: int) -> None:
        """End a server; nothing if none runs."""

    async def why_ended(self, number: int) -> str:
        """How a server ended that does not answer; empty if it runs on."""

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``."""


def start_first(launcher: InstanceLauncher) -> Server:
    """Start server 0 and probe it: others are like it. Raises UserError."""

    async def started() -> Server:
        try:
            await launcher.start(0)
        except NotReady as error:
            raise UserError(f"the {launcher.what} is of no use: {error}") from None
        return await probe(launcher.address(0), launcher.model, launcher.key, _PROBE_S)

    launcher.like = asyncio.run(started())
    return launcher.like


def server_of(launcher: InstanceLauncher, number: int) -> Server:
    """Return the server as it runs now or ran last; at ``NOWHERE`` if it was never started."""
    assert launcher.like is not None, "server 0 was not probed"
    return replace(launcher.like, address=launcher.address(number))


def start_others(launcher: InstanceLauncher, numbers: Sequence[int]) -> tuple[Server, ...]:
    """Start these servers at the same time; stop server 0 if it is not among them. Return all.

    Raises UserError.
    """

    async def started() -> None:
        wanted = [number for number in numbers if number not in launcher.running]
        try:
            await asyncio.gather(*[launcher.start(number) for number in wanted])
        except NotReady as error:
            raise UserError(f"a {launcher.what} is of no use: {error}") from None
        for number in set(launcher.running) - set(numbers):
            await launcher.stop(number)

    asyncio.run(started())
    return tuple([server_of(launcher, number) for number in range(launcher.servers)])


async def first_answer(address: Address, model: str | None, key: str | None, until_ns: int) -> None:
    """Wait for the answer to a server's first request. Raises NotReady."""
    left_s = max(0.0, (until_ns - time.monotonic_ns()) / NS_PER_S)
    try:
        async with asyncio.timeout(left_s):
            name, _ = await model_of(address, model, key, left_s)
            dialect, _, _ = await kind_of(address, key, left_s)
            wish = Wish(name, tuple(range(1, 9)), _FIRST_TOKENS, "servetwin-ready")
            async for _ in tokens_of(address, dialect, wish, key):
                pass
    except (OSError, Refused, ValueError) as error:
        words = str(error) or type(error).__name__
        raise NotReady(f"it does not answer a first request ({words})") from None
