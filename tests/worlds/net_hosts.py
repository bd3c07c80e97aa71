"""Two hosts on one machine: network namespaces joined by a cable, which counts what goes over it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

CARD = "cable"
ADDRESSES = ("10.77.0.1", "10.77.0.2")


@dataclass(frozen=True)
class Host:
    """A namespace of its own: its loopback and its end of the cable are all the network that it has."""

    name: str
    ip: str

    @property
    def inside(self) -> list[str]:
        """What a command begins with that is to run there."""
        return ["ip", "netns", "exec", self.name]

    def received_bytes(self) -> int:
        """Over the cable, so far."""
        told = _ip("-n", self.name, "-s", "-j", "link", "show", "dev", CARD)
        return int(json.loads(told)[0]["stats64"]["rx"]["bytes"])

    def remove(self) -> None:
        """With all its processes; does no harm where it was not made."""
        left = subprocess.run(["ip", "netns", "pids", self.name], text=True, capture_output=True).stdout
        for number in map(int, left.split()):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)

    def unplug(self) -> None:
        """Nothing comes or goes any more, and nobody is told."""
        _ip("-n", self.name, "link", "set", CARD, "down")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """What still runs in them at the end is killed with them."""
    hosts = [Host(f"servetwin-{os.getpid()}-{at}", ip) for at, ip in enumerate(ADDRESSES)]
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        one, other = (host.name for host in hosts)
        _ip("link", "add", CARD, "netns", one, "type", "veth", "peer", "name", CARD, "netns", other)
        for host in hosts:
            _ip("-n", host.name, "address", "add", f"{host.ip}/24", "dev", CARD)
            for card in ("lo", CARD):
                _ip("-n", host.name, "link", "set", card, "up")
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            host.remove()


@cache
def cannot() -> str:
    """What keeps this machine from it, in a sentence; empty where nothing does."""
    if sys.platform != "linux" or not shutil.which("ip"):
        return "network namespaces want Linux and its program ip (Debian: apt-get install iproute2)"
    try:
        with two_hosts():
            return ""
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines()
        return f"network namespaces cannot be made here: {said[-1] if said else error}"


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, text=True, capture_output=True).stdout
