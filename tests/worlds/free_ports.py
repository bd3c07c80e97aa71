"""A port of 127.0.0.1 that nobody listens on now."""

import socket


def free_port() -> int:
    """The system chooses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
