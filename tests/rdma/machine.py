"""Virtual machines without KVM or network devices of this host: one alone, or two joined by a socket."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rdma.packages import QEMU

# Of QEMU's models the plainest that numpy's and torch's instructions run on; "max" is three times as slow.
CPU = "Nehalem"
_KERNEL = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check audit=0 random.trust_cpu=on"


@dataclass(frozen=True)
class Guest:
    """Runs a shell script in this host's root and powers off; ``link``: arguments for its network card."""

    name: str
    ip: str
    script: str
    link: Sequence[str] = ("-net", "none")


@dataclass(frozen=True)
class Lab:
    """``folder`` has the kernel and initrd, and ``share``, which guests see as /share."""

    folder: Path
    kernel: Path
    memory_mb: int = 3072

    @property
    def share(self) -> Path:
        return self.folder / "share"

    def start(self, guest: Guest) -> "subprocess.Popen[bytes]":
        """Its console goes to ``NAME.console``, what the script prints to ``share/NAME.out``."""
        (self.share / f"{guest.name}.sh").write_text(guest.script)
        for what in ("status", "out"):
            (self.share / f"{guest.name}.{what}").unlink(missing_ok=True)
        boot = f"{_KERNEL} guest={guest.name} ip={guest.ip}/24"
        words = [
            QEMU, "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "2", "-m", str(self.memory_mb),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.folder / (guest.name + '.console')}",
            "-kernel", str(self.kernel), "-initrd", str(self.folder / "initrd"), "-append", boot,
            *_shared("share", self.share), *_shared("host", Path("/"), ",readonly=on"), *guest.link,
        ]  # fmt: skip
        return subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def status(self, guest: Guest) -> str:
        """What the script ended with; empty: it did not end."""
        path = self.share / f"{guest.name}.status"
        return path.read_text().strip() if path.exists() else ""

    def said(self, guest: Guest) -> str:
        """What the script has printed so far."""
        path = self.share / f"{guest.name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def console(self, guest: Guest) -> str:
        """The end of it: what a machine says whose script was not reached."""
        return (self.folder / f"{guest.name}.console").read_text(errors="replace")[-2000:]


def joined(folder: Path, number: int) -> tuple[str, ...]:
    """A card whose cable is a Unix socket; machine 0 listens there."""
    end = f"stream,id=n,server={'on' if number == 0 else 'off'},addr.type=unix,addr.path={folder / 'cable'}"
    card = f"virtio-net-pci,netdev=n,mac=52:54:00:00:00:0{number + 1},host_mtu=4500,romfile="
    return ("-netdev", end, "-device", card)


def _shared(tag: str, path: Path, how: str = "") -> tuple[str, ...]:
    folder = f"local,id={tag},path={path},security_model=none,multidevs=remap{how}"
    return ("-fsdev", folder, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")
