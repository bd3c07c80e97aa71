"""Which nodes of a Ray cluster are still there."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

LOOK_S: Final = 1.0
# A node whose raylet takes no connection for so long is gone, whatever the cluster's list says yet.
_CONNECT_S: Final = 1.0


class Nodes:
    """A thread asks the cluster for its list of members, every second, until it is closed."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._listed: dict[str, Mapping[str, Any]] = {node["NodeID"]: node for node in ray.nodes()}
        self._lost: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()

    def lost(self, node: str) -> str | None:
        """Why a node is gone; None while it is a member. Waits for nothing."""
        return self._lost.get(node)

    def words(self, node: str) -> str:
        """What a node is called in messages."""
        listed = self._listed.get(node, {})
        return f"Ray node {node[:8]} ({listed.get('NodeManagerAddress', 'of no known address')})"

    def close(self) -> None:
        """Nobody asks any more."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            with suppress(Exception):  # the cluster's own service may be gone for a while
                for node in self._ray.nodes():
                    self._listed[node["NodeID"]] = node
            for number, node in self._listed.items():
                if number not in self._lost and not (node["Alive"] and _answers(node)):
                    self._lost[number] = f"{self.words(number)} is gone"


def _answers(node: Mapping[str, Any]) -> bool:
    """Whether its raylet takes a connection: the cluster's list learns of a death only seconds later."""
    try:
        at = node["NodeManagerAddress"], node["NodeManagerPort"]
        socket.create_connection(at, _CONNECT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # it may be slow; heart-beats tell
    return True
