"""The first bytes of a file, unpacked: enough to tell its format."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Final

from traces.errors import TraceError

HEAD_BYTES: Final = 2 << 20
"""Long enough for the first request of any JSONL file."""
_BOM: Final = b"\xef\xbb\xbf"


def head_of(path: Path) -> bytes:
    """At most ``HEAD_BYTES`` from the start, without byte-order mark; TraceError when it cannot be read."""
    try:
        if path.is_dir():
            raise TraceError(f"{path} is a directory: name the trace file in it")
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path} is not a sound gzip file ({error}): fetch or copy it again") from error
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number else str(error)
        raise TraceError(f"{path} cannot be read ({reason}): name a readable trace file") from error
    if not head.strip():
        raise TraceError(f"{path} is empty: name a file with at least one request")
    return head.removeprefix(_BOM)
