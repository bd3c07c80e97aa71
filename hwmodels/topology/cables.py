"""Cables that can be lost: of NICs, and between leaf and spine switches; each is two links."""

from dataclasses import dataclass

from hwmodels.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Cable:
    """Both directions of a cable. name: ``host0/nic1``, ``leaf0-spine1``, ...; nic: -1 between switches."""

    name: str
    nic: int
    links: tuple[int, int]


def cables_of(topology: Topology) -> tuple[Cable, ...]:
    """The cables of the NICs by number, then those between leaves and spines."""
    counts, starts, per_host = topology.counts, topology.starts, topology.spec.nics_per_host
    cables = [
        Cable(f"host{nic // per_host}/nic{nic % per_host}", nic, (starts.nic_in + nic, starts.nic_out + nic))
        for nic in range(counts.nics)
    ]
    for leaf in range(counts.leaves if counts.up_spines else 0):
        for spine in range(counts.up_spines):
            at = leaf * counts.up_spines + spine
            links = starts.leaf_up + at, starts.spine_down + at
            cables.append(Cable(f"leaf{leaf}-spine{spine}", -1, links))
    return tuple(cables)
