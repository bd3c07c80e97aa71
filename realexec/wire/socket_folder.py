"""The folder of a Unix socket: only this user enters it; what processes left that were killed is removed."""

import contextlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

SOCKET: Final = "s"
_PREFIX: Final = "servetwin-socket-"
# Of a Unix socket's path on Linux, with the final zero, is 108 (sun_path in unix(7)); 104 elsewhere.
_MOST_PATH_BYTES: Final = 100


def private_folder() -> Path:
    """A new one of mode 0700, with a path short enough for a socket in it."""
    for root in (Path(tempfile.gettempdir()), Path("/tmp")):
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))
        if len(os.fsencode(folder / SOCKET)) <= _MOST_PATH_BYTES:
            _remove_dead(root)
            return folder
        folder.rmdir()
    raise OSError("no folder for temporary files has a path short enough for a socket")


def remove(folder: Path) -> None:
    """With its socket, if it is still there."""
    with contextlib.suppress(OSError):
        (folder / SOCKET).unlink(missing_ok=True)
        folder.rmdir()


def _remove_dead(root: Path) -> None:
    """What processes left that were killed: neither does one of that number live, nor does anybody answer."""
    for folder in root.glob(f"{_PREFIX}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
            if folder.lstat().st_uid == os.getuid() and not _lives(owner) and not _answers(folder / SOCKET):
                remove(folder)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _answers(path: Path) -> bool:
    """Numbers of processes say nothing about other containers that share the folder."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True
