"""Fetching a trace from its publisher: whole and with the pinned hash, or not at all."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from io import FileIO
from pathlib import Path
from typing import Final

from traces.errors import TraceError
from traces.fetching.http import Answer
from traces.fetching.http import open_url as open_web_url
from traces.fetching.sources import Source
from traces.reading import file_digest

# The file a download grows in: one writer at a time, kept when it stops, renamed when it is whole.

try:
    import fcntl
except ImportError:  # a system without it has no lock: then the hash alone guards the file
    fcntl = None  # type: ignore[assignment]

SUFFIX: Final = ".part"
_ATTEMPTS: Final = 10
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BUSY: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


@contextmanager
def said(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into a TraceError that names ``path``."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise TraceError(_sentence(path, error)) from error


@contextmanager
def locked_part(path: Path) -> Iterator[FileIO]:
    """The unfinished file, open for this fetch alone; afterwards it stays, unless it is empty.

    Raises TraceError when another fetch holds it or it cannot be written.
    """
    with said(path):
        part = _opened(path)
    try:
        yield part
    finally:
        with suppress(OSError):
            if size_bytes(part) == 0 and _still_at(part, path):
                path.unlink()
        part.close()


def size_bytes(part: FileIO) -> int:
    """How much is there."""
    return os.fstat(part.fileno()).st_size


def append(part: FileIO, piece: bytes, path: Path) -> None:
    """Write ``piece`` at the end; what was written before an error stays."""
    with said(path):
        part.seek(0, os.SEEK_END)
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(part.fileno(), rest) :]


def empty(part: FileIO, path: Path) -> None:
    """Begin anew."""
    with said(path):
        part.truncate(0)


def sha256_of(part: FileIO, path: Path) -> str:
    """The hash of what lies on the disk, from the first byte on."""
    with said(path):
        part.seek(0)
        return hashlib.file_digest(part, "sha256").hexdigest()


def check_space(folder: Path, needed_bytes: int) -> None:
    """TraceError when the disk of ``folder`` has less room than that."""
    with said(folder):
        free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise TraceError(
            f"{folder} has room for {free_bytes} bytes and the file needs {needed_bytes} more:"
            " free some space or name another folder"
        )


def publish(part: FileIO, path: Path, final: Path) -> None:
    """Give the whole and checked file its name, once its bytes are on the disk; never over another file."""
    with said(path):
        os.fsync(part.fileno())
        if os.path.lexists(final):
            raise TraceError(f"{final} appeared while {path} was fetched: move one of the two away")
        path.rename(final)
    with suppress(OSError):  # the name is durable a little later where folders cannot be synchronised
        descriptor = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _opened(path: Path) -> FileIO:
    """Open and lock the file that ``path`` names *after* the lock was won.

    Another fetch may have renamed or deleted the file between our opening it and its letting go.
    """
    for _ in range(_ATTEMPTS):
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        part = FileIO(os.open(path, flags, 0o666), "r+")
        try:
            if not stat.S_ISREG(os.fstat(part.fileno()).st_mode):
                raise TraceError(f"{path} is not a regular file: move it away")
            _lock(part, path)
            if _still_at(part, path):
                return part
        except BaseException:
            part.close()
            raise
        part.close()
    raise _busy(path)


def _lock(part: FileIO, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # any other: a file system without locks
        if error.errno in _BUSY:
            raise _busy(path) from error


def _busy(path: Path) -> TraceError:
    return TraceError(f"{path} is being written by another fetch: wait for it, then run the command again")


def _still_at(part: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(part.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _sentence(path: Path, error: OSError | ValueError) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL:
        return (
            f"{path} cannot grow, the disk is full: free some space and run the same command again"
            " to continue the file"
        )
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path} may not be written by this user: name another folder, or change its permissions"
    reason = os.strerror(code) if code else str(error)
    return f"{str(path)!r} cannot be used ({reason}): name another folder"


# The download itself: bytes of one address appended to the unfinished file, then judged.

PIECE_BYTES: Final = 256 << 10
"""Most bytes between two reports of progress."""
Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes of the whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    what_happened = (
        "the server stopped sending" if isinstance(error, TimeoutError) else "the connection was cut"
    )
    return TraceError(
        f"{job.url}: {what_happened} after {have_bytes} of {job.size_bytes} bytes: run the same command again"
        f" to continue {job.path}"
    )


def _judge(job: Download) -> None:
    digest = sha256_of(job.part, job.path)
    if digest != job.sha256:
        raise _wrong(job, f"sent a file with sha256 {digest} instead of {job.sha256} ({job.hash_source})")


def _wrong(job: Download, problem: str) -> TraceError:
    """Delete what came, as nothing can be built on it."""
    empty(job.part, job.path)  # an empty unfinished file is removed when it is let go
    return TraceError(
        f"{job.url} {problem}: the received bytes were deleted, so run the command again, and if it fails"
        " again give another url"
    )


def fetch(
    source: Source,
    folder: str | os.PathLike[str],
    *,
    url: str | None = None,
    on_progress: Progress | None = None,
    open_url: Callable[[str, int], Answer] = open_web_url,
) -> Path:
    """The file of ``source`` in ``folder``, downloaded unless it is there.

    url: another address of the same bytes. What arrives is kept in FILE.part: a fetch that was cut or stopped
    goes on there. The name without .part is given only to a file of the pinned size and hash; an existing
    file is never written to. Raises TraceError in one sentence when the
    source has no pinned size and hash (then a person puts the file there, and nothing vouches for it), and
    on everything else that can go wrong.
    """
    place = Path(folder)
    final = place / source.file_name
    address = _address(source, final, url)
    if _is_there(source, final):
        return final
    with said(place):
        place.mkdir(parents=True, exist_ok=True)
    path = place / (source.file_name + SUFFIX)
    with locked_part(path) as part:
        if not _is_there(source, final):  # another fetch may have ended while this one came to the lock
            assert source.bytes is not None and source.sha256 is not None
            download(
                Download(
                    url=address,
                    size_bytes=source.bytes,
                    sha256=source.sha256,
                    hash_source=source.hash_source or "pinned here",
                    path=path,
                    part=part,
                    on_progress=on_progress or _silent,
                    open_url=open_url,
                )
            )
            publish(part, path, final)
    return final


def _silent(bytes_done: int, bytes_total: int) -> None:
    pass


def _is_there(source: Source, final: Path) -> bool:
    """Whether the right file lies there; TraceError when another one does."""
    with said(final):
        if not os.path.lexists(final):
            return False
        if not final.is_file():
            raise TraceError(f"{final} is not a file: move it away, then fetch {source.name} again")
        found_bytes = final.stat().st_size
    if source.bytes is not None and found_bytes != source.bytes:
        raise _other(source, final, f"has {found_bytes} bytes instead of {source.bytes}")
    if source.sha256 is not None:
        digest = file_digest(final)
        if digest != source.sha256:
            raise _other(source, final, f"has sha256 {digest} instead of {source.sha256}")
    return True


def _other(source: Source, final: Path, difference: str) -> TraceError:
    return TraceError(f"{final} {difference}: move it away or rename it, then fetch {source.name} again")


def _address(source: Source, final: Path, url: str | None) -> str:
    """Where to fetch from; TraceError that says what a person can do when that or the hash is not known."""
    address = url if url is not None else source.url
    if address is not None and source.pinned:
        return address
    lacks = "no url is known" if source.pinned else "no size and hash are known to check it"
    if os.path.lexists(final) and not source.pinned:
        raise TraceError(f"{final} is there already, but {lacks}: use it as it is")
    raise TraceError(
        f"{source.file_name} cannot be fetched, as {lacks}: find it at {source.page} and put it into"
        f" {final.parent} as {source.file_name}" + (f" ({source.note})" if source.note else "")
    )
