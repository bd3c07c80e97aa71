"""The groups of ``system/``: their policies' protocol, and the arguments of the constructors."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serving.engine.fleet import Admission, Dispatcher
from serving.parameters.copies import Copies
from serving.protocols.batch import Batcher
from serving.protocols.live import LivePolicy
from serving.protocols.migration import Migrator
from serving.protocols.provisioning import Provisioner
from serving.protocols.scaling import Scaler
from serving.protocols.stages import StageScaler


@dataclass(frozen=True, slots=True)
class PolicyGroup:
    """``provided``: constructor parameters that the builder passes and no user may set.

    ``follows``: parameters whose value is always another key's.
    """

    protocol: type
    provided: tuple[str, ...]
    follows: Mapping[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> dict[str, inspect.Signature]:
        """The required methods of a policy class: method -> signature."""
        return {name: inspect.signature(method) for name, method in self._routines()}

    @property
    def method_names(self) -> list[str]:
        """The names of ``methods``, without reading a signature."""
        return [name for name, _ in self._routines()]

    @property
    def attributes(self) -> list[str]:
        """The required attributes of a policy object besides its methods."""
        return [name for name, value in self._public() if not inspect.isroutine(value)]

    def _routines(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        return ((name, value) for name, value in self._public() if inspect.isroutine(value))

    def _public(self) -> Iterator[tuple[str, object]]:
        for owner in reversed(self.protocol.__mro__):
            if owner.__module__ != "typing":
                yield from ((name, value) for name, value in vars(owner).items() if name[0] != "_")


_ENGINE_KEYS: Final = ("max_num_seqs", "max_num_batched_tokens", "reserve_full_prompt")

POLICY_GROUPS: Final[dict[str, PolicyGroup]] = {
    "dispatch": PolicyGroup(Dispatcher, ("random", "estimates")),
    "batcher": PolicyGroup(Batcher, ("estimates",), {key: f"engine.{key}" for key in _ENGINE_KEYS}),
    "admission": PolicyGroup(Admission, ("random", "estimates")),
    "scaler": PolicyGroup(Scaler, ("estimates", "ttft_slo_ms", "tpot_slo_ms")),
    "provision": PolicyGroup(Provisioner, ("estimates",)),
    "cache": PolicyGroup(Copies, ("sizes_bytes", "hosts")),
    "live": PolicyGroup(LivePolicy, ("ttft_slo_ms",)),
    "migration": PolicyGroup(Migrator, ("random", "estimates")),
    "stages": PolicyGroup(StageScaler, ("estimates", "mean_rate_per_s")),
}


def group_of(key: str) -> PolicyGroup | None:
    """Return the group of ``system/dispatch``; None for a key that is no group."""
    top, _, name = key.partition("/")
    return POLICY_GROUPS.get(name) if top == "system" else None
