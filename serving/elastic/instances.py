"""Which GPUs belong to which instance: slots, their occupation, and the state of every instance.

A slot is a group of GPUs of one host that could serve a model, or of whole hosts of one scale-up domain if an
instance has more GPUs than a host (``serving.elastic.free_groups``). docs/contributing/STATES.md has the
table of states and events of an instance.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from serving.elastic.free_groups import NO_OWNER, FreeGroups, Offer, SlotNumbers
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.scaling import InstanceState
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, Role

_GONE = -2  # instead of a GPU's owner: the GPU is lost
_SUPPLIES = ("serving", "loading")


class Instance:
    """One replica while it owns GPUs."""

    __slots__ = ("replica", "role", "state")

    def __init__(self, replica: Replica, role: Role, state: InstanceState) -> None:
        self.replica = replica
        self.role: Role = role
        self.state: InstanceState = state


class Instances:
    """All instances of all models on one cluster."""

    __slots__ = (
        "_behind_nic", "_cluster", "_free", "_numbers", "_of_model", "_owner", "_parked", "_prototypes",
        "_replicas", "_supply", "changes", "live", "prefilling_nics", "touched",
    )  # fmt: skip

    def __init__(
        self, cluster: ClusterMap, prototypes: Mapping[str, Replica], placed: Sequence[Replica]
    ) -> None:
        """``prototypes``: a replica of each model, without number and GPUs; ``placed`` ones serve."""
        self._cluster = cluster
        self._prototypes = prototypes
        self._owner = [NO_OWNER] * len(cluster.ports)
        self._numbers = SlotNumbers()
        self._replicas: dict[int, Replica] = {}  # those that were started
        self.live: dict[int, Instance] = {}
        self.changes: Counter[str] = Counter()  # model -> how often one of its instances changed
        self.touched = set[str]()  # models of which an instance changed; whoever reads them takes them out
        self._of_model: dict[str, dict[int, Instance]] = {}  # the same instances, by model
        self._parked: dict[int, int] = {}  # replica -> until when its parameters are kept on free GPUs
        self._supply: Counter[tuple[str, Role]] = Counter()
        self._free = FreeGroups(cluster, self._owner)
        self._behind_nic: Counter[int] = Counter()  # NIC -> GPUs behind it that serve prefill
        self.prefilling_nics = 0  # the set of those NICs: bit n stands for NIC n
        for replica in placed:
            runs = self._numbers.number(replica.model, 1 << replica.gpus[0])
            assert runs[-1].start == replica.id, f"replica {replica.id} is not placed in order of its number"
            self._replicas[replica.id] = replica
            self._occupy(replica, replica.role, "serving")

    def supply(self, model: str, role: Role) -> int:
        """Number of instances that serve or load."""
        return self._supply[model, role]

    def of(self, model: str, role: Role | None = None) -> list[Instance]:
        """The instances of a model (in a role), by number."""
        counts = self._of_model.get(model, {})
        return [counts[number] for number in sorted(counts) if role is None or counts[number].role == role]

    @property
    def models(self) -> list[str]:
        """The models that have an instance, by name."""
        return sorted(model for model, counts in self._of_model.items() if counts)

    def has_free(self) -> bool:
        """Whether a model may find free GPUs, or an instance whose parameters are still on GPUs."""
        return self._free.any() or bool(self._parked)

    def part_of(self, model: str) -> Part:
        """The layers of the model that one instance holds."""
        return self._prototypes[model].part

    def gpus_per_instance(self, model: str) -> int:
        """Number of GPUs of one instance."""
        return len(self._prototypes[model].gpus)

    def free_slots(self, model: str) -> Offer:
        """The model's slots whose GPUs are all free; those without a number get one."""
        size = self.gpus_per_instance(model)
        free = self._free.of(size)
        return Offer(free, self._numbers.number(model, free), size)

    def replica(self, number: int) -> Replica:
        """The replica with this number, whether or not it was started."""
        replica = self._replicas.get(number)
        if replica is None:
            model, first = self._numbers.place_of(number)
            gpus = tuple(range(first, first + self.gpus_per_instance(model)))
            replica = self._replicas[number] = self._prototypes[model].on(number, gpus)
        return replica

    def spare(self, model: str, now_ns: int) -> int:
        """Number of free slots, not counting those of parked instances."""
        free = self._free.count(self.gpus_per_instance(model))
        return free - len(self.parked(model, now_ns)) if self._parked else free

    def parked(self, model: str, now_ns: int) -> tuple[int, ...]:
        """Reclaimed instances whose parameters are still on their GPUs."""
        if not self._parked:
            return ()
        over = [number for number, until_ns in self._parked.items() if until_ns <= now_ns]
        for number in over:
            del self._parked[number]
        return tuple(sorted(number for number in self._parked if self.replica(number).model == model))

    def parked_until_ns(self) -> list[int]:
        """For each reclaimed instance, until when its parameters stay."""
        return list(self._parked.values())

    def place(self, number: int, role: Role, state: InstanceState) -> Instance:
        """Give the slot's GPUs to this replica; parameters parked on them are overwritten."""
        slot = self.replica(number)
        taken = set(slot.gpus)
        for other in [other for other in self._parked if taken & set(self.replica(other).gpus)]:
            del self._parked[other]
        return self._occupy(slot, role, state)

    def _occupy(self, slot: Replica, role: Role, state: InstanceState) -> Instance:
        for gpu in slot.gpus:
            assert self._owner[gpu] == NO_OWNER, f"GPU {gpu} belongs to replica {self._owner[gpu]}"
            self._owner[gpu] = slot.id
        self._free.update(slot.gpus)
        instance = self.live[slot.id] = Instance(slot, role, state)
        self._of_model.setdefault(slot.model, {})[slot.id] = instance
        self._changed(slot.model)
        self._count(instance, 1)
        return instance

    def _changed(self, model: str) -> None:
        self.changes[model] += 1
        self.touched.add(model)

    def _count(self, instance: Instance, by: int) -> None:
        """Count the instance (1), or no longer (-1), where its role and state count."""
        if instance.state in _SUPPLIES:
            self._supply[instance.replica.model, instance.role] += by
        if instance.state == "serving" and instance.role == "prefill":
            for gpu in instance.replica.gpus:
                nic = self._cluster.ports[gpu].nic
                before = self._behind_nic[nic]
                self._behind_nic[nic] = before + by
                if not (before and before + by):
                    self.prefilling_nics ^= 1 << nic

    def rewired(self, cluster: ClusterMap) -> None:
        """Note that GPUs are behind other NICs: one was lost."""
        self._cluster = cluster
        self._behind_nic.clear()
        self.prefilling_nics = 0
        ports = cluster.ports
        for instance in self.live.values():
            if instance.state == "serving" and instance.role == "prefill":
                for gpu in instance.replica.gpus:
                    self._behind_nic[ports[gpu].nic] += 1
                    self.prefilling_nics |= 1 << ports[gpu].nic

    def loaded(self, number: int) -> None:
        """Mark the instance as serving: all its parameters are loaded."""
        self._change(number, "loading", "serving")

    def drain(self, number: int) -> None:
        """Mark the instance as draining: it takes no new requests."""
        self._change(number, "serving", "draining")

    def terminate(self, number: int) -> None:
        """Mark an instance that will be lost: it takes no new requests but keeps its GPUs until then."""
        serves = self.live[number].state == "serving"
        self._change(number, "serving" if serves else "draining", "terminating")

    def close_host(self, host: int) -> None:
        """Start no more instances on this host, which will be lost."""
        count = self._cluster.gpus_per_host
        gpus = range(host * count, (host + 1) * count)
        for parked in [entry for entry in self._parked if not set(gpus).isdisjoint(self.replica(entry).gpus)]:
            self.unpark(parked)
        self._mark_lost([gpu for gpu in gpus if self._owner[gpu] == NO_OWNER])

    def cancel_drain(self, number: int) -> None:
        """Mark a draining instance as serving again."""
        self._change(number, "draining", "serving")

    def _change(self, number: int, old: InstanceState, new: InstanceState) -> None:
        instance = self.live[number]
        assert instance.state == old, f"replica {number} is {instance.state}, not {old}"
        self._count(instance, -1)
        instance.state = new
        self._count(instance, 1)
        self._changed(instance.replica.model)

    def switch_role(self, number: int, role: Role) -> None:
        """Change the role of a serving instance."""
        instance = self.live[number]
        assert instance.state == "serving", f"replica {number} is {instance.state} and cannot change its role"
        self._count(instance, -1)
        instance.role = role
        self._changed(instance.replica.model)
        self._count(instance, 1)

    def free(self, number: int, parked_until_ns: int | None = None) -> None:
        """Free the instance's GPUs; with a time given, its parameters stay on them until then."""
        assert self.live[number].state != "terminating", (
            f"replica {number} is terminating and keeps its GPUs until it is lost"
        )
        instance = self._remove_instance(number)
        for gpu in instance.replica.gpus:
            self._owner[gpu] = NO_OWNER
        self._free.update(instance.replica.gpus)
        if parked_until_ns is not None:
            self._parked[number] = parked_until_ns

    def lost(self, number: int, keeps_gpus: bool = False) -> None:
        """Remove a lost instance, and its GPUs for good unless its process alone is lost."""
        instance = self._remove_instance(number)
        if not keeps_gpus:
            self._mark_lost(instance.replica.gpus)
            return
        for gpu in instance.replica.gpus:
            self._owner[gpu] = NO_OWNER
        self._free.update(instance.replica.gpus)

    def _remove_instance(self, number: int) -> Instance:
        instance = self.live.pop(number)
        del self._of_model[instance.replica.model][number]
        self._changed(instance.replica.model)
        self._count(instance, -1)
        return instance

    def lost_host(self, host: int) -> None:
        """Remove the GPUs of this host; its instances were lost before."""
        count = self._cluster.gpus_per_host
        gpus = range(host * count, (host + 1) * count)
        owners = {self._owner[gpu] for gpu in gpus} & self.live.keys()
        assert not owners, f"host {host} still has the replicas {sorted(owners)}"
        for parked in [entry for entry in self._parked if not set(gpus).isdisjoint(self.replica(entry).gpus)]:
            self.unpark(parked)
        self._mark_lost(gpus)

    def unpark(self, number: int) -> None:
        """Note that a parked instance's parameters are no longer on its old GPUs."""
        self._parked.pop(number, None)

    def _mark_lost(self, gpus: Sequence[int]) -> None:
        for gpu in gpus:
            self._owner[gpu] = _GONE
        self._free.update(gpus)
