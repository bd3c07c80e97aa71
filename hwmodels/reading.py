"""Reads a user's file as bytes: a regular file of limited size."""

import os
import stat
from pathlib import Path

from hwmodels.errors import HardwareError


def read_limited(path: Path, most_bytes: int) -> bytes:
    """The whole file of at most ``most_bytes``. HardwareError if it has more or is no regular file.

    OSError if it cannot be read; callers explain it by the file's purpose.
    """
    # Non-blocking: opening a pipe without a writer would never return.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise HardwareError(f"{path} is not a regular file; name a file")
        if found.st_size > most_bytes:
            raise HardwareError(
                f"{path} has {found.st_size} bytes and the limit is {most_bytes}; name another file"
            )
        return file.read(found.st_size)
