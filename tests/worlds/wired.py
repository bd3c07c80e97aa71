"""A made-up driver's end as a worker needs it: what it says comes by a descriptor that can be waited for."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any


class Wired:
    """``driver`` has ``recv``, which waits and raises EOFError at its end, and ``send``.

    It is asked for the next message once the one before has been taken.
    """

    def __init__(self, driver: Any) -> None:
        self._said: deque[Any] = deque()
        self._out, self._in = os.pipe()
        self._taken = threading.Semaphore(1)
        self.send = driver.send
        threading.Thread(target=self._listen, args=(driver,), daemon=True).start()

    def _listen(self, driver: Any) -> None:
        try:
            while self._taken.acquire():
                self._said.append(driver.recv())
                os.write(self._in, b"!")
        except EOFError:
            self._said.append(EOFError())
            os.write(self._in, b"!")

    def fileno(self) -> int:
        return self._out

    def recv_some(self) -> Iterator[Any]:
        while self._said:
            os.read(self._out, 1)
            message = self._said.popleft()
            if isinstance(message, EOFError):
                raise message
            yield message
            self._taken.release()
