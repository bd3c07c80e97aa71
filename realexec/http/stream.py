"""One request at one server, as a stream of tokens."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from realexec.http.client import Address, BrokenStream, ask
from realexec.http.dialects import MISFIT, Chunk, Dialect, Reader, Wish
from serving.record.json_text import json_data

_DATA: Final = b"data:"


class Refused(Exception):
    """The server refused this request."""


async def tokens_of(
    address: Address,
    dialect: Dialect,
    wish: Wish,
    key: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks that carry tokens, to the last; closing the generator aborts the request.

    ``more``: fields beside those of the wish. Raises Refused if the server refuses the request, OSError if
    the connection breaks.
    """
    answer = await ask(address, dialect.path, dialect.body(wish) | dict(more or {}), key)
    try:
        if answer.status != 200:
            raise Refused(_words(answer.status, await answer.body()))
        reader = dialect.reader()
        async with aclosing(answer.lines()) as lines:
            async for line in lines:
                if not line.startswith(_DATA):
                    continue
                chunk = _read(reader, line[len(_DATA) :].strip())
                if chunk.tokens:
                    yield chunk
                if chunk.fault is not None:
                    raise BrokenStream(chunk.fault)
                if chunk.ended:
                    return
        raise BrokenStream("the stream ended without its last chunk")
    except ValueError as error:
        raise BrokenStream(f"an answer that cannot be read ({error})") from None
    finally:
        answer.close()


def _read(reader: Reader, data: bytes) -> Chunk:
    try:
        return reader.read(data)
    except MISFIT as error:
        raise ValueError(f"{data[:60]!r} has fields of another kind: {error}") from None


async def answer_of(address: Address, path: str, body: Any, key: str | None = None) -> dict[str, Any]:
    """Return a whole answer, a JSON object; cancelling the task that calls this aborts the request.

    Raises as ``tokens_of``.
    """
    answer = await ask(address, path, body, key)
    try:
        text = await answer.body()
        if answer.status != 200:
            raise Refused(_words(answer.status, text))
        parsed = json_data(text)
        if not isinstance(parsed, dict):
            raise ValueError(f"{text[:60]!r} is no object")
        return parsed
    except ValueError as error:
        raise BrokenStream(f"an answer that cannot be read ({error})") from None
    finally:
        answer.close()


def _words(status: int, body: bytes) -> str:
    try:
        parsed = json_data(body)
        error = parsed.get("error", parsed)
        text = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        text = body.decode("utf-8", "replace")
    return f"{status} {' '.join(str(text).split())[:200]}".strip()
