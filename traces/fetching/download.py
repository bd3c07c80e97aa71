"""The download itself: bytes of one address appended to the unfinished file, then judged."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from io import FileIO
from pathlib import Path
from typing import Final

from traces.errors import TraceError
from traces.fetching.http import Answer
from traces.fetching.part import append, check_space, empty, sha256_of, size_bytes

PIECE_BYTES: Final = 256 << 10
"""Most bytes between two reports of progress."""
Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes of the whole file."""


@dataclass(frozen=True, slots=True)
class Download:
    """What is fetched from where into which open file.

    size_bytes, sha256: what the whole file must be; hash_source: who says so.
    """

    url: str
    size_bytes: int
    sha256: str
    hash_source: str
    path: Path
    part: FileIO
    on_progress: Progress
    open_url: Callable[[str, int], Answer]


def download(job: Download) -> None:
    """Complete the unfinished file and check its size and hash, or raise TraceError.

    After an error the file holds what is worth going on with; wrong content is deleted.
    """
    have_bytes = size_bytes(job.part)
    if have_bytes > job.size_bytes:
        empty(job.part, job.path)
        have_bytes = 0
    if have_bytes < job.size_bytes:
        check_space(job.path.parent, job.size_bytes - have_bytes)
        with closing(_answer(job, have_bytes)) as answer:
            _check_total(job, answer)
            if answer.first_byte == 0:
                empty(job.part, job.path)
            _receive(job, answer)
    _judge(job)


def _answer(job: Download, have_bytes: int) -> Answer:
    """An answer that begins where the file ends, or at 0 when the server does not go on."""
    answer = job.open_url(job.url, have_bytes)
    if answer.first_byte in (0, have_bytes):
        return answer
    answer.close()
    answer = job.open_url(job.url, 0)
    if answer.first_byte != 0:
        answer.close()
        raise TraceError(f"{job.url} does not send the file from its first byte: give another url")
    return answer


def _check_total(job: Download, answer: Answer) -> None:
    if answer.total_bytes not in (None, job.size_bytes):
        raise TraceError(
            f"{job.url} has {answer.total_bytes} bytes instead of {job.size_bytes}:"
            " it is a different file, or its publisher changed it, so give another url"
        )


def _receive(job: Download, answer: Answer) -> None:
    have_bytes = size_bytes(job.part)
    job.on_progress(have_bytes, job.size_bytes)
    while have_bytes < job.size_bytes or answer.total_bytes is None:
        try:
            piece = answer.read(PIECE_BYTES)
        except (OSError, HTTPException) as error:
            if have_bytes == job.size_bytes:
                return
            raise _cut(job, have_bytes, error) from error
        if not piece:
            break
        have_bytes += len(piece)
        if have_bytes > job.size_bytes:
            raise _wrong(job, f"sends more than {job.size_bytes} bytes")
        append(job.part, piece, job.path)
        job.on_progress(have_bytes, job.size_bytes)
    if have_bytes < job.size_bytes:
        raise _ended(job, answer, have_bytes)


def _ended(job: Download, answer: Answer, have_bytes: int) -> TraceError:
    """The server stopped early: on purpose when it marks the end of what it sends."""
    if answer.has_end:
        return _wrong(job, f"ends after {have_bytes} of {job.size_bytes} bytes")
    return _cut(job, have_bytes, None)


def _cut(job: Download, have_bytes: int, error: Exception | None) -> TraceError:
    what = "the server stopped sending" if isinstance(error, TimeoutError) else "the connection was cut"
    return TraceError(
        f"{job.url}: {what} after {have_bytes} of {job.size_bytes} bytes: run the same command again"
        f" to continue {job.path}"
    )


def _judge(job: Download) -> None:
    found = sha256_of(job.part, job.path)
    if found != job.sha256:
        raise _wrong(job, f"sent a file with sha256 {found} instead of {job.sha256} ({job.hash_source})")


def _wrong(job: Download, problem: str) -> TraceError:
    """Delete what came, as nothing can be built on it."""
    empty(job.part, job.path)  # an empty unfinished file is removed when it is let go
    return TraceError(
        f"{job.url} {problem}: the received bytes were deleted, so run the command again, and if it fails"
        " again give another url"
    )
