"""Which transport or copy is used for each path of bytes, given what the machine has."""

from collections.abc import Mapping, Sequence
from typing import Final

from realexec.transport_registry import DIRECT, ONE_HOST, best_first

_HOW: Final = {
    "shared_memory": "the reader copies out of the peer's arena",
    "tcp": "a connection of its own; a thread of the peer sends",
    "peer_copy": "from the peer's device memory into the own one",
    "nccl": "a thread of the peer sends from its GPU to the own one",
    "gloo": "a thread of the peer sends from the memory that it computes in",
}
_GPU: Final = "; between arena and GPU by copies of pinned pages"


def path_choices(transports: Mapping[str, str | None], on_gpu: bool) -> dict[str, str]:
    """Return a sentence for each path. ``transports``: why the machine cannot use each, or None."""
    have = [name for name, lack in transports.items() if lack is None]
    near = _told(best_first(have, on_gpu))
    far = _told([name for name in have if name not in ONE_HOST])
    copied = _GPU if on_gpu else ""
    return {
        "parameters from a disk": f"files mapped, through the page cache{copied}",
        "parameters from the host's memory": f"a second copy in the worker's arena{copied}",
        "parameters from a peer of this host": near if _direct(have, on_gpu) else f"{near}{copied}",
        "parameters from a peer of another host": f"{far}{copied}",
        "KV": "as parameters from a peer",
        "hidden states": "as parameters from a peer",
    }


def _direct(have: Sequence[str], on_gpu: bool) -> bool:
    return bool(have) and best_first(have, on_gpu)[0] in DIRECT


def _told(names: Sequence[str]) -> str:
    """Name the first transport, and those that a run may name instead."""
    if not names:
        return "no transport works here"
    first, *others = names
    text = f"{first} ({_HOW[first]})" if first in _HOW else first
    return f"{text}; or transport={' or '.join(others)}" if others else text
