"""Requests to the Kubernetes API, repeated where the API says that they may be.

Paths, answers and status codes: https://kubernetes.io/docs/reference/using-api/api-concepts/ and
https://kubernetes.io/docs/reference/kubernetes-api/.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from realexec.http.client import Answer, ask
from realexec.kubernetes.kubeconfig import Access
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

MERGE: Final = "application/merge-patch+json"
CONFLICT, GONE, NOT_FOUND, FORBIDDEN, TOO_MANY = 409, 410, 404, 403, 429
AGAIN: Final = frozenset({CONFLICT, TOO_MANY, 500, 502, 503, 504})
_ANSWER_S: Final = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_LONGEST_MESSAGE: Final = 200
Body = dict[str, Any]


class Refused(UserError):
    """The API answered a request with an error. ``status``: its code."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class KubernetesApi:
    """``patience_s``: for so long a request is repeated that may be. ``repeated``: how often one was."""

    def __init__(self, access: Access, patience_s: float = 30.0) -> None:
        self._access, self._patience_s = access, patience_s
        self.repeated = 0

    async def get(self, path: str) -> Body:
        """Return an object or a list. Raises Refused."""
        return await self._repeated("GET", path, None)

    async def patch(self, path: str, body: Body) -> Body:
        """Merge ``body`` into an object, whatever its version. Raises Refused."""
        return await self._repeated("PATCH", path, body)

    async def delete(self, path: str, body: Body) -> Body:
        """Delete an object. Raises Refused."""
        return await self._repeated("DELETE", path, body)

    async def change(self, path: str, changed: Callable[[Body], Body | None]) -> Body:
        """Merge what ``changed`` makes of an object into that version of it alone; read it again on 409.

        None from ``changed``: nothing is to change. Returns the object. Raises Refused.
        """
        until_s = time.monotonic() + self._patience_s
        while True:
            found = await self.get(path)
            body = changed(found)
            if body is None:
                return found
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            body = {**body, "metadata": {**body.get("metadata", {}), **version}}
            try:
                return await self._repeated("PATCH", path, body, AGAIN - {CONFLICT})
            except Refused as error:
                if error.status != CONFLICT or time.monotonic() > until_s:
                    raise
                self.repeated += 1
                await asyncio.sleep(_FIRST_WAIT_S * random.random())

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncGenerator[Answer, None]:
        """The answer to a watch, whose lines come for as long as it lasts. Raises Refused or OSError."""
        async with asyncio.timeout(_ANSWER_S):
            answer = await self._ask("GET", path, None)
        try:
            if answer.status != 200:
                raise self._refused("GET", path, answer.status, await answer.body())
            yield answer
        finally:
            answer.close()

    async def _repeated(
        self, method: str, path: str, body: Body | None, again: frozenset[int] = AGAIN
    ) -> Body:
        """Send a request until it is answered, with growing pauses or those that the API asks for."""
        until_s, wait_s = time.monotonic() + self._patience_s, _FIRST_WAIT_S
        while True:
            asked_s: float | None = None
            try:
                status, payload, asked_s = await self._once(method, path, body)
                if status // 100 == 2:
                    return self._object(method, path, payload)
                error: UserError = self._refused(method, path, status, payload)
                repeats = status in again
            except OSError as broken:
                error, repeats = self._unreached(broken), not isinstance(broken, ssl.SSLCertVerificationError)
            pause_s = wait_s * (0.5 + random.random()) if asked_s is None else asked_s
            if not repeats or time.monotonic() + pause_s > until_s:
                raise error
            self.repeated += 1
            await asyncio.sleep(pause_s)
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)

    async def _once(self, method: str, path: str, body: Body | None) -> tuple[int, bytes, float | None]:
        """Return status, body, and the seconds of Retry-After."""
        async with asyncio.timeout(_ANSWER_S):
            answer = await self._ask(method, path, body)
            try:
                text = answer.headers.get("retry-after", "")
                after_s = float(text) if text.isascii() and text.isdecimal() else None
                return answer.status, await answer.body(), after_s
            finally:
                answer.close()

    async def _ask(self, method: str, path: str, body: Body | None) -> Answer:
        one = self._access
        content = MERGE if method == "PATCH" else "application/json"
        return await ask(one.address, path, body, one.token(), method, content=content, tls=one.tls)

    def _object(self, method: str, path: str, payload: bytes) -> Body:
        try:
            data = json_data(payload.decode())
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise self._refused(method, path, 200, payload)
        return data

    def _refused(self, method: str, path: str, status: int, payload: bytes) -> Refused:
        text = payload.decode("utf-8", "replace")
        with suppress(ValueError, KeyError, TypeError):
            text = str(json_data(text)["message"])  # of a Status object
        what = f"{method} {path.partition('?')[0]}"
        told = f"the Kubernetes API at {self._access.address} answers {status} to {what}"
        return Refused(status, f"{told}: {' '.join(text.split())[:_LONGEST_MESSAGE] or 'nothing more'}")

    def _unreached(self, error: OSError) -> UserError:
        why = str(error) or type(error).__name__
        return UserError(
            f"the Kubernetes API at {self._access.address} is not reached ({why}): check the server, the "
            "certificate-authority and the token of http.kubeconfig"
        )
