"""How fast instances are decided on, in ms and raw SimPy timeouts (see benchmarks/README.md).

python -m benchmarks.planner            all cases
python -m benchmarks.planner hosts      one of them

A plan over 1,024 GPUs, or a provision of seats there, should take at most 10 ms; a call of the load monitor
that finds nothing to do at most 2 us (a solve of that row is the mean of 2,000 calls). Printed are the least,
p50 and p99 of 100 solves, in ms and in raw.
"""

from collections.abc import Callable
from time import process_time

from benchmarks.command import among, command
from benchmarks.raw import Solves, solves
from policies.multicast.planner import MulticastPlanner
from policies.provisioning import NetworkProvisioner
from policies.scaling.load_monitor import load_monitor
from serving.protocols.planning import Planner, Port, ScaleUp, Source, Target
from serving.protocols.provisioning import GpuSlot, Provision, Provisioner
from serving.protocols.scaling import FixedRole, InstanceView, ScalingView

ROUNDS, SOLVES = 5, 20
GPUS = 1024
AIM_MS = 10.0
QUIET_AIM_MS = 0.002
QUIET_CALLS = 2_000
NIC_BYTES_PER_S = 12_500_000_000
NVLINK_BYTES_PER_S = 200_000_000_000


def hosts() -> tuple[Planner, ScaleUp]:
    """8 GPUs of one host hold the model; 127 hosts of 8 load it as groups, 16 hosts to a leaf."""
    return MulticastPlanner(), scale_up(8, 1, domain_gpus=8, leaf_gpus=128)


def one_chain() -> tuple[Planner, ScaleUp]:
    """One GPU holds it; every other GPU is a group of its own: a chain of 1,023."""
    return MulticastPlanner("depth"), scale_up(1, 1, domain_gpus=1, leaf_gpus=32)


def half() -> tuple[Planner, ScaleUp]:
    """512 GPUs to 512, each a group of its own, sources and targets mixed in every leaf."""
    return MulticastPlanner(), scale_up(512, 1, domain_gpus=1, leaf_gpus=32, stride=3)


def tp_4() -> tuple[Planner, ScaleUp]:
    """16 instances of 4 GPUs to 240, two to a host, each alone."""
    return MulticastPlanner(grouping="instance"), scale_up(16, 4, domain_gpus=8, leaf_gpus=64, stride=5)


CASES: dict[str, Callable[[], tuple[Planner, ScaleUp]]] = {
    "hosts": hosts,
    "one_chain": one_chain,
    "half": half,
    "tp_4": tp_4,
}


def scale_up(holders: int, size: int, domain_gpus: int, leaf_gpus: int, stride: int = 1) -> ScaleUp:
    """Instances of ``size`` GPUs all over the cluster; ``holders`` of them, ``stride`` apart, are sources."""
    ports = [Port(gpu, gpu // domain_gpus, gpu // leaf_gpus, gpu, NIC_BYTES_PER_S) for gpu in range(GPUS)]
    instances = [tuple(ports[first : first + size]) for first in range(0, GPUS, size)]
    held = {position * stride % len(instances) for position in range(holders)}
    sources = [Source(("replica", gpu), instances[gpu]) for gpu in sorted(held)]
    targets = [Target(place, instance) for place, instance in enumerate(instances) if place not in held]
    return ScaleUp(tuple(sources), tuple(targets), len(targets), size)


def provision() -> tuple[Provisioner, Provision]:
    """One GPU of every other host holds it; all others are wanted, half of them beside a holder."""
    whole = scale_up(1, 1, domain_gpus=8, leaf_gpus=128)
    everyone = [
        *whole.sources,
        *(Source(("replica", target.replica), target.ports) for target in whole.targets),
    ]
    held = [instance for instance in everyone if instance.endpoint[1] % 16 == 0]
    seats = [
        GpuSlot(number, (number,), number // 8, instance.ports, False)
        for instance in everyone
        for number in (instance.endpoint[1],)
        if number % 16
    ]
    wanted = Provision(
        model="m",
        role="decode",
        count=len(seats),
        slots=tuple(seats),
        holders=tuple(held),
        host_copies=(),
        stores=("ssd",),
        scale_up_bytes_per_s=NVLINK_BYTES_PER_S,
    )
    return NetworkProvisioner(), wanted


def fleet() -> ScalingView:
    """10 prefill and 6 decode instances, loads between their bounds."""
    busy = [InstanceView(id, "serving", 1) for id in range(16)]
    prefill = FixedRole("prefill", tuple(busy[:10]), 1, 14)
    decode = FixedRole("decode", tuple(busy[10:]), 1, 14)
    return ScalingView(
        now_ns=0,
        model="m",
        roles=(prefill, decode),
        backlog_tokens=60_000,
        kv_tokens=2_500_000,
        migrating_tokens=0,
        prefill_tokens_per_s=13_000,
        kv_tokens_per_instance=480_000,
        kv_tokens_per_s=96_000.0,
        spare=4,
    )


def repeated(call: Callable[[], object], times: int = 1) -> Solves:
    """CPU seconds of one call, the mean of ``times``, again and again."""

    def once() -> float:
        started = process_time()
        for _ in range(times):
            call()
        return (process_time() - started) / times

    return solves(once, ROUNDS, SOLVES)


def measure(name: str) -> tuple[Solves, str]:
    """(CPU seconds of decisions; what was decided)."""
    if name == "quiet":
        monitor, view = load_monitor(), fleet()
        assert monitor.scale(view) == ()
        return repeated(lambda: monitor.scale(view), QUIET_CALLS), "no decision"
    if name == "provision":
        provisioner, request = provision()
        edges = provisioner.provision(request).edges
        assert sum(len(edge.targets) for edge in edges) == request.count
        return repeated(lambda: provisioner.provision(request)), f"{len(edges)} edges"
    planner, wanted = CASES[name]()
    plan = planner.plan(wanted)
    assert len(plan.replicas) == wanted.instances
    return repeated(lambda: planner.plan(wanted)), f"{len(plan.edges)} edges"


def main(names: list[str]) -> None:
    """Print one line per case."""
    known = [*CASES, "provision", "quiet"]
    among(names, known, "case")
    for name in names or known:
        times, size = measure(name)
        aim_ms = QUIET_AIM_MS if name == "quiet" else AIM_MS
        print(f"{name:10s} {times.text()}   aim {aim_ms:g} ms   {size}", flush=True)


if __name__ == "__main__":
    command("benchmarks.planner", __doc__, main)
