"""QUART's KeysManager (section 6.1): keeps parameters of key stages in the memory of hosts that ran them."""

from typing import Final

from serving.protocols.stages import (
    EvictCopy,
    HostCopyView,
    KeepCopy,
    PipelineView,
    StageDecision,
    StageHostView,
)

MOST_USED: Final = 0.85
"""Share of a host's memory above which it forgets copies (section 6.1)."""


class KeysManager:
    """One per cluster: every host on which a replica of a key stage serves keeps a copy of the stage.

    The copy is a forked process whose pages the replica shares (copy-on-write); it outlives the replica. If
    memory in use is above ``most_used``, the least recently used copies are evicted, of any model.
    """

    def __init__(self, most_used: float = MOST_USED) -> None:
        if not 0 < most_used <= 1:
            raise ValueError(
                f"most_used={most_used} is not a share of memory: write a number above 0 and at most 1"
            )
        self._most_used = most_used

    def manage(self, view: PipelineView, keys: frozenset[int]) -> tuple[StageDecision, ...]:
        """Decide for each host which copies to evict and which to keep.

        Copies that loads read stay: evicting them would free no bytes.
        """
        return tuple([decision for host in view.hosts for decision in self._of(view, host, keys)])

    def _of(self, view: PipelineView, host: StageHostView, keys: frozenset[int]) -> list[StageDecision]:
        limit = int(self._most_used * host.memory_bytes)
        may_go = [copy for copy in host.copies if not copy.in_use]
        oldest = sorted(may_go, key=lambda copy: (copy.used_ns, copy.model, copy.stage))
        evicted: list[HostCopyView] = []
        used = host.used_bytes
        while used > limit and oldest:
            used -= oldest[0].bytes
            evicted.append(oldest.pop(0))
        decisions: list[StageDecision] = []
        for stage in _newcomers(view, host, keys):
            size = view.stages[stage].bytes
            room = limit - used + sum(copy.bytes for copy in oldest if not _is_key(copy, view, keys))
            while used + size > limit and room >= size:
                goes = next(copy for copy in oldest if not _is_key(copy, view, keys))
                oldest.remove(goes)
                evicted.append(goes)
                used -= goes.bytes
            if used + size <= limit:
                used += size
                decisions.append(KeepCopy(stage, host.id, f"key stage {stage} serves on host {host.id}"))
        why = f"host {host.id} may use {limit} bytes: least recently used first"
        return [*[EvictCopy(copy.model, copy.stage, host.id, why) for copy in evicted], *decisions]


def _newcomers(view: PipelineView, host: StageHostView, keys: frozenset[int]) -> list[int]:
    """Key stages that serve on the host and have no copy there."""
    return [
        stage.index
        for stage in view.stages
        if stage.index in keys
        and not host.has_copy(view.model, stage.index)
        and any(replica.host == host.id and replica.state == "serving" for replica in stage.replicas)
    ]


def _is_key(copy: HostCopyView, view: PipelineView, keys: frozenset[int]) -> bool:
    """Whether the copy is of a key stage of this pipeline; such a copy is not evicted for another one."""
    return copy.model == view.model and copy.stage in keys
