"""A file's bytes, plain or gzipped, in pieces; each failure is an error of one sentence."""

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traces.errors import TraceError

BLOCK_BYTES = 2 << 20
"""Enough rows to amortise numpy's call cost, and few: a 1 GB trace needs little memory beside its columns."""
MOST_BYTES = 4 << 30
"""Longest text that is read, and largest Parquet file: several times the longest published trace."""
FREE_BYTES = 64 << 20
MOST_RATIO = 100
"""A packed file may hold ``FREE_BYTES`` and so many times its own size; traces of digits reach 4 to 30 times,
a file made to fill the memory over 1000 times."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEAST_BYTES = 18  # header, an empty block, checksum and length
_BOM = b"\xef\xbb\xbf"
_ENDINGS = (".csv", ".txt", ".jsonl", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class Origin:
    """A file as a workload names it. digest: SHA-256 of its bytes."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> "Origin":
        """The origin of a readable regular file that is not too large, else TraceError."""
        _check_size(path)
        return cls(path, file_digest(path))

    @property
    def name(self) -> str:
        """The file's name without the endings of a trace."""
        stem = self._shown.removesuffix(".gz")
        for ending in _ENDINGS:
            stem = stem.removesuffix(ending)
        return stem or self._shown

    @property
    def source(self) -> str:
        """The file's name and hash."""
        return f"{self._shown} sha256={self.digest}"

    @property
    def _shown(self) -> str:
        return self.path.name.encode("utf-8", "backslashreplace").decode()  # a name on disk need not be text


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes as they lie on disk; TraceError when it is no readable regular file."""
    _check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error


def pieces(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """The bytes in pieces of at least 1 and about ``piece_bytes``: unpacked, no byte-order mark.

    Raises TraceError when it is no regular file, cannot be read or is no sound gzip file, holds gzip data
    under a name that does not say so, or is or unpacks to more than a trace can be.
    """
    most_bytes, done_bytes = _check_size(path), 0
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            piece = file.read(max(piece_bytes, len(_BOM)))
            if piece.startswith(_GZIP_MAGIC):
                plain = path.name.removesuffix(".gz")
                raise TraceError(f"{path} holds gzip data: name it {plain}.gz (gzipped once)")
            piece = piece.removeprefix(_BOM) or file.read(piece_bytes)
            while piece:
                done_bytes += len(piece)
                if done_bytes > most_bytes:
                    raise _too_large(path, most_bytes)
                yield piece
                piece = file.read(piece_bytes)
    except EOFError as error:
        raise TraceError(f"{path} is a truncated gzip file: fetch or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path} is not a valid gzip file ({error}): fetch it again, or drop .gz from its name"
        ) from error
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error


def head_of(path: Path) -> bytes:
    """The first ``BLOCK_BYTES``, long enough for the first request of any file; empty when the file is.

    Raises TraceError as ``pieces`` does.
    """
    return next(pieces(path, BLOCK_BYTES), b"")


def line_blocks(path: Path) -> Iterator[bytes]:
    """Blocks of whole lines, each ending in a newline (added to a last line without). Raises TraceError."""
    rest = b""
    for piece in pieces(path, BLOCK_BYTES):
        head, newline, tail = piece.rpartition(b"\n")
        if not newline and len(rest) > BLOCK_BYTES:
            raise TraceError(f"{path} has a line of over {BLOCK_BYTES} bytes: write one request per line")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += tail
    if rest:
        yield rest + b"\n"


def most_unpacked_bytes(packed_bytes: int) -> int:
    """What a packed file of this size may unpack to."""
    return min(MOST_BYTES, FREE_BYTES + MOST_RATIO * packed_bytes)


def _check_size(path: Path) -> int:
    """How many bytes of text the file may hold; TraceError, before any are kept, when it says it has more."""
    size = _check_regular(path)
    if not path.name.endswith(".gz"):
        if size > MOST_BYTES:
            raise _too_large(path, MOST_BYTES)
        return MOST_BYTES
    most_bytes = most_unpacked_bytes(size)
    if size >= _GZIP_LEAST_BYTES and _unpacks_to_more(path, most_bytes):
        raise _too_large(path, most_bytes)
    return most_bytes


def _unpacks_to_more(path: Path, most_bytes: int) -> bool:
    """Whether a gzip file says so in its last bytes, and it is true: a damaged one ends in any bytes."""
    try:
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            if int.from_bytes(file.read(4), "little") <= most_bytes:
                return False  # or it lies, which shows while it is read
        with gzip.open(path, "rb") as unpacked:
            done_bytes = 0
            while done_bytes <= most_bytes and (piece := unpacked.read(BLOCK_BYTES)):
                done_bytes += len(piece)
        return done_bytes > most_bytes
    except (EOFError, OSError, ValueError, zlib.error):
        return False  # told when it is read


def _too_large(path: Path, most_bytes: int) -> TraceError:
    if most_bytes == MOST_BYTES:
        return TraceError(f"{path} has more than {MOST_BYTES} bytes of text: split it, and read one part")
    return TraceError(
        f"{path} unpacks to more than {most_bytes} bytes, {MOST_RATIO} times its own size and more than any "
        "known trace: if you trust it, unpack it and name the unpacked file"
    )


def _check_regular(path: Path) -> int:
    """The file's size."""
    try:
        status = path.stat()
        mode = status.st_mode
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error
    if stat.S_ISDIR(mode):
        raise TraceError(f"{path} is a directory: name the trace file in it")
    if not stat.S_ISREG(mode):  # a pipe can be read once only, and without a writer never
        raise TraceError(f"{path} is not a regular file: save the trace to a file and name that")
    return status.st_size


def _cannot_read(path: Path, error: OSError | ValueError) -> TraceError:
    if isinstance(error, FileNotFoundError):
        return TraceError(f"{path} does not exist: check the path, or the current folder it is relative to")
    if isinstance(error, PermissionError):
        return TraceError(f"{path} may not be read by this user: change its permissions (chmod u+r)")
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return TraceError(f"{str(path)!r} cannot be read ({reason}): name a readable file")
