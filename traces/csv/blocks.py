"""A text file, plain or gzipped, as blocks of whole lines; each way it can fail is said in one sentence."""

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from traces.errors import TraceError

BLOCK_BYTES = 2 << 20
"""Enough rows to amortise numpy's call cost, and few: a 1 GB trace needs little memory beside its columns."""
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes as they lie on disk; TraceError when it is no readable regular file."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise TraceError(f"{path} is a directory: name the trace file in it")
        if not stat.S_ISREG(mode):
            raise TraceError(f"{path} is not a regular file: save the trace to a file and name that")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error


def line_blocks(path: Path) -> Iterator[bytes]:
    """Blocks of whole lines, each ending in a newline (added to a last line without); no byte-order mark."""
    rest = b""
    try:
        for piece in _pieces(path):
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
    except EOFError as error:
        raise TraceError(f"{path} is a truncated gzip file: fetch or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path} is not a sound gzip file ({error}): fetch it again, or drop .gz from its name"
        ) from error
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error


def _pieces(path: Path) -> Iterator[bytes]:
    zipped = path.name.endswith(".gz")
    with gzip.open(path, "rb") if zipped else path.open("rb") as file:
        piece = file.read(BLOCK_BYTES)
        if piece.startswith(_GZIP_MAGIC):
            plain = path.name.removesuffix(".gz")
            raise TraceError(f"{path} holds gzip data: name it {plain}.gz (gzipped once)")
        piece = piece.removeprefix(_BOM)
        while piece:
            yield piece
            piece = file.read(BLOCK_BYTES)


def _cannot_read(path: Path, error: OSError | ValueError) -> TraceError:
    if isinstance(error, FileNotFoundError):
        return TraceError(f"{path} does not exist: check the path, or the current folder it is relative to")
    if isinstance(error, PermissionError):
        return TraceError(f"{path} may not be read by this user: change its permissions (chmod u+r)")
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return TraceError(f"{str(path)!r} cannot be read ({reason}): name a readable file")
