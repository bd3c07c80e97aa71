"""Watches which nodes of a Ray cluster are still alive."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

LOOK_S: Final = 1.0
# Timeout in seconds for connecting to a node's raylet. A refused connection means that the node is gone.
_CONNECT_S: Final = 1.0


class Nodes:
    """A thread reads the cluster's list of nodes every second, until `close`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._listed: dict[str, Mapping[str, Any]] = {node["NodeID"]: node for node in ray.nodes()}
        self._lost: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()

    def lost(self, node: str) -> str | None:
        """Return why a node is gone; None while it is a member. Does not block."""
        return self._lost.get(node)

    def words(self, node: str) -> str:
        """Return the name of a node for messages."""
        listed = self._listed.get(node, {})
        return f"Ray node {node[:8]} ({listed.get('NodeManagerAddress', 'of no known address')})"

    def close(self) -> None:
        """Stop the watching thread."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            with suppress(Exception):  # the cluster's own service may be unreachable for a while
                for node in self._ray.nodes():
                    self._listed[node["NodeID"]] = node
            for number, node in self._listed.items():
                if number not in self._lost and not (node["Alive"] and _answers(node)):
                    self._lost[number] = f"{self.words(number)} is gone"


def _answers(node: Mapping[str, Any]) -> bool:
    """Whether its raylet accepts a connection: the cluster's list shows a dead node only seconds later."""
    try:
        at = node["NodeManagerAddress"], node["NodeManagerPort"]
        socket.create_connection(at, _CONNECT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # the node may only be slow; missing heart-beats show it
    return True
