"""What the guest's kernel starts from: busybox, the modules it needs in order, and a script."""

import gzip
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

WANTED = (
    "virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "dummy", "crc32_generic", "ib_uverbs",
    "rdma_rxe",
)  # fmt: skip
# The root of this host, read only, with the packages beside it and memory for what is written on top.
INIT = """#!/busybox sh
B=/busybox
$B mkdir -p /proc /sys /dev /host /share /top /new
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
for module in /modules/*; do $B insmod $module || echo "no $module"; done
for word in $($B cat /proc/cmdline); do case $word in guest=*|ip=*) export "$word";; esac; done
end() { echo "GUEST $guest ENDS $1"; echo $1 > /share/$guest.status; $B sync; $B poweroff -f; }
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none share /share || $B poweroff -f
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro host /host || end 90
$B mount -t tmpfs -o size=80% top /top; $B mkdir /top/up /top/work
$B mount -t overlay -o lowerdir=/share/extra:/host,upperdir=/top/up,workdir=/top/work over /new || end 91
for folder in proc sys dev; do $B mount -o bind /$folder /new/$folder || end 92; done
$B mkdir -p /dev/shm /dev/infiniband /new/share
$B mount -t tmpfs shm /dev/shm; $B mount -t tmpfs run /new/run
$B mount -o bind /share /new/share || end 93
$B ip link set lo up
card=eth0; [ -e /sys/class/net/eth0 ] || card=dummy0
$B ip link set $card mtu 4500; $B ip addr add $ip dev $card; $B ip link set $card up
$B chroot /new /bin/rdma link add rxe0 type rxe netdev $card || end 94
echo "GUEST $guest UP"
$B chroot /new /bin/sh /share/$guest.sh > /share/$guest.out 2>&1
end $?
"""


def initrd(kernel: Path, busybox: Path, out: Path) -> Path:
    """Writes the archive; returns the kernel that goes with it."""
    (release,) = (path.name for path in (kernel / "lib" / "modules").iterdir())
    modules = in_order(kernel / "lib" / "modules" / release, WANTED)
    entries = [
        ("init", 0o100755, INIT.encode()),
        ("busybox", 0o100755, (busybox / "bin/busybox").read_bytes()),
    ]
    entries.append(("modules", 0o040755, b""))
    entries += [(f"modules/{at:02}.ko", 0o100644, text) for at, text in enumerate(modules)]
    with gzip.open(out, "wb", compresslevel=1) as archive:
        for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
            archive.write(_entry(number, name, mode, content))
    return kernel / "boot" / f"vmlinuz-{release}"


def in_order(folder: Path, wanted: tuple[str, ...]) -> list[bytes]:
    """Modules with those they depend on before them; what is not there is part of the kernel."""
    paths = {path.name.split(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found or name not in paths:
            return
        raw = paths[name].read_bytes()
        text = lzma.decompress(raw) if paths[name].suffix == ".xz" else raw
        for other in _depends(text):
            add(other)
        found[name] = text

    for name in wanted:
        add(name)
    return list(found.values())


def _depends(module: bytes) -> Iterator[str]:
    said = re.search(rb"\0depends=([^\0]*)\0", module)
    yield from (name.replace("-", "_") for name in said[1].decode().split(",") if name) if said else ()


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    """One file of a cpio archive in the "newc" form: thirteen numbers in hexadecimal, name, content."""
    path = name.encode() + b"\0"
    numbers = (number + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % one for one in numbers) + path
    return _padded(head) + _padded(content)


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 4)
