"""Opens and reads users' files: regular files only, and no more of them than fits the purpose."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError

MOST_LINE_BYTES: Final = 1 << 26  # a journal's longest lines, of 8192 replicas that start at once, have 1 MB


def open_regular(path: Path) -> BufferedReader:
    """The file, opened to read bytes. HardwareError if it is no regular file: a pipe or device may never end.

    OSError if it cannot be opened; callers explain it by the file's purpose.
    """
    # Non-blocking: opening a pipe without a writer would never return.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise HardwareError(f"{path} is not a regular file; name a file")
    return file


def read_limited(path: Path, most_bytes: int) -> bytes:
    """The whole file of at most ``most_bytes``. HardwareError if it has more or is no regular file.

    OSError if it cannot be read; callers explain it by the file's purpose.
    """
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > most_bytes:
            raise HardwareError(
                f"{path} has {size_bytes} bytes and the limit is {most_bytes}; name another file"
            )
        return file.read(size_bytes)


def lines_of(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines with their newlines. HardwareError as for ``open_regular``, and for an endless line.

    Raises UnicodeDecodeError, and OSError.
    """
    with open_regular(path) as file:
        while line := file.readline(MOST_LINE_BYTES + 1):
            if len(line) > MOST_LINE_BYTES:
                raise HardwareError(
                    f"{path} has a line of over {MOST_LINE_BYTES} bytes; name a file as it was written"
                )
            yield line.decode(encoding)
