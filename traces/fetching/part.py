"""The file a download grows in: one writer at a time, kept when it stops, renamed when it is whole."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final

from traces.errors import TraceError

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
