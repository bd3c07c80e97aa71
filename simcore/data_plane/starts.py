"""All instance starts: their terms, what hosts keep for the next start, which processes sleep where."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hwmodels.loading.starting import (
    CACHED,
    COMPILED,
    TOTAL,
    Starting,
    Terms,
    after_weights,
    before_weights,
    seconds_of,
    until_probe,
)
from hwmodels.models.load_units import Shape, model_units
from serving.vocabulary.actions import Load
from serving.vocabulary.layers import Part
from simcore.data_plane.replica_placement import ReplicaPlacement
from simcore.data_plane.residency import Residency

_EVERYWHERE: Final = -1  # a cache that all hosts share

Compiled = tuple[int, str, int, int, int]
"""What a compile cache is of: its place, the model, the layers [first, last), GPUs per instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start. kind: its kind, which under ``hot`` is ``cold`` if no process sleeps there.

    compiled: ``compiled``, ``cached`` or empty if the engine needs neither. terms: those before and after the
    parameters that occurred. complete: the instance came up. seconds: from ``asked_s`` to its end.
    """

    load: int
    target: int
    kind: str
    compiled: str
    terms: Terms
    asked_s: float
    seconds: float = 0.0
    complete: bool = False

    def ended(self, now_s: float, complete: bool) -> "StartRecord":
        """The same at its end; for each load, so not ``replace``."""
        return StartRecord(
            load=self.load,
            target=self.target,
            kind=self.kind,
            compiled=self.compiled,
            terms=self.terms,
            asked_s=self.asked_s,
            seconds=now_s - self.asked_s,
            complete=complete,
        )


class Starts:
    """``records``: starts that ended. ``per_host``: number of GPUs of a host.

    starting: None uses the engine's declaration (``ReplicaPlacement.start``), whose parts are not separated.
    """

    __slots__ = (
        "_asleep_s", "_checked", "_compiled", "_compiling", "_open", "_per_host", "_placement", "_pulled_s",
        "_residency", "_shapes", "_starting", "records",
    )  # fmt: skip

    def __init__(
        self,
        starting: Starting | None,
        placement: ReplicaPlacement,
        residency: Residency,
        shapes: Mapping[str, Shape],
        per_host: int,
    ) -> None:
        self._starting, self._placement, self._residency = starting, placement, residency
        self._shapes, self._per_host = shapes, per_host
        self.records: list[StartRecord] = []
        self._open: dict[tuple[int, int], StartRecord] = {}  # by load and target
        self._compiled: set[Compiled] = set()
        self._compiling: dict[tuple[int, int], tuple[Compiled, float]] = {}  # and its end
        self._checked: set[tuple[int, tuple[int, ...]]] = set()  # place, GPUs with a stored P2P check
        self._pulled_s: dict[int, float] = {}  # host -> when it has the container's image
        self._asleep_s: dict[int, float] = {}  # GPU -> when the process that falls asleep there has left it
        if starting is not None and starting.ready:
            for number, gpus in placement.gpus_of.items():
                self._compiled.add(self._cache_of(placement.part_of[number], gpus))
                self._checked.add(self._check_of(gpus))
                self._pulled_s[gpus[0] // self._per_host] = 0.0

    def loader(self, load: Load, usual: str) -> str:
        """The loader of a load: a process that wakes copies its own memory, with any file loader."""
        return "direct" if load.cold and self._all_wake(load) else usual

    def begin(self, now_s: float, load: Load, part: Part) -> float:
        """Start the processes of the load's targets; seconds until all can take parameters."""
        longest_s = 0.0
        for target, (kind, number) in enumerate(load.targets):
            if kind == "replica":
                record = self._begin_record(now_s, load, target, number, part)
                self._open[load.load, target] = record
                before = record.terms if self._starting is not None else record.terms[:1]
                longest_s = max(longest_s, seconds_of(before))
        return longest_s

    def _begin_record(self, now_s: float, load: Load, target: int, number: int, part: Part) -> StartRecord:
        starting = self._starting
        if starting is None:
            times = self._placement.start(number)
            declared: Terms = (("before", times.before_load_s), ("after", times.after_load_s))
            return StartRecord(
                load=load.load, target=target, kind="", compiled="", terms=declared, asked_s=now_s
            )
        gpus = self._placement.gpus_of[number]
        kind = "cold" if starting.kind == "hot" and not self._is_asleep(load, gpus) else starting.kind
        terms = before_weights(kind, starting.of(len(part), len(gpus)), self._is_checked(gpus))
        if starting.kind == "hot":
            terms = (("falls_asleep", self._still_s(now_s, gpus)), *terms)
        if starting.image_pull_s:
            terms = (("image_pull", self._pull_s(now_s, gpus)), *terms)
        return StartRecord(load=load.load, target=target, kind=kind, compiled="", terms=terms, asked_s=now_s)

    def after(self, now_s: float, load: Load, target: int, part: Part) -> float:
        """Seconds from the last byte to the first step; finds what other starts have compiled by now."""
        record = self._open.get((load.load, target))
        if record is None:
            return 0.0
        if self._starting is None:
            return record.terms[1][1]
        if self._starting.kind == TOTAL:
            left_s = max(0.0, record.asked_s + self._starting.total_s - now_s)
            self._open[load.load, target] = replace(record, terms=(("start", left_s),))
            return left_s
        gpus = self._placement.gpus_of[load.targets[target][1]]
        seconds, cache = self._starting.of(len(part), len(gpus)), self._cache_of(part, gpus)
        cached = record.kind == "warm" or self._has(cache, now_s)
        terms = after_weights(record.kind, seconds, cached)
        compiled = ""
        if terms and seconds.compile_whole:
            compiled = CACHED if cached else COMPILED
            if not cached:
                self._compiling[load.load, target] = cache, now_s + seconds.compile_whole
        self._checked.add(self._check_of(gpus))
        running_s = now_s + seconds_of(terms) - record.asked_s - dict(record.terms).get("image_pull", 0.0)
        terms = (*terms, *until_probe(self._starting.probe_s, running_s))
        whole = *record.terms, *terms
        self._open[load.load, target] = StartRecord(
            load=load.load,
            target=target,
            kind=record.kind,
            compiled=compiled,
            terms=whole,
            asked_s=record.asked_s,
        )
        return seconds_of(terms)

    def ended(self, now_s: float, load: int, target: int, complete: bool) -> None:
        """End the start of an instance, complete or not; what it has compiled by now stays."""
        record = self._open.pop((load, target), None)
        if record is None:
            return
        cache, done_s = self._compiling.pop((load, target), (None, 0.0))
        if cache is not None and (complete or done_s <= now_s):
            self._compiled.add(cache)
        self.records.append(record.ended(now_s, complete))

    def released(self, now_s: float, replica: int) -> None:
        """An instance releases its GPUs: under ``hot`` it falls asleep, which keeps them busy for a while."""
        if self._starting is None or self._starting.kind != "hot":
            return
        gpus, part = self._placement.gpus_of[replica], self._placement.part_of[replica]
        if not self._residency.has(("replica", replica), part):
            return  # it never came up
        units = model_units(self._shapes[part.model], layers=range(part.first, part.last))
        size_bytes = sum([unit.size_bytes for unit in units])
        left_s = now_s + size_bytes / len(gpus) / self._starting.terms.sleep_bytes_per_s
        for gpu in gpus:
            self._asleep_s[gpu] = left_s

    def _pull_s(self, now_s: float, gpus: tuple[int, ...]) -> float:
        """Seconds until the host has the image; the first start there pulls it, others wait for that."""
        assert self._starting is not None
        done_s = self._pulled_s.setdefault(gpus[0] // self._per_host, now_s + self._starting.image_pull_s)
        return max(0.0, done_s - now_s)

    def _still_s(self, now_s: float, gpus: tuple[int, ...]) -> float:
        return max(0.0, max([self._asleep_s.get(gpu, now_s) for gpu in gpus]) - now_s)

    def _is_asleep(self, load: Load, gpus: tuple[int, ...]) -> bool:
        """Whether the parameters come from the own host's memory, where the process sleeps."""
        return load.sources == (("host", gpus[0] // self._per_host),)

    def _all_wake(self, load: Load) -> bool:
        if self._starting is None or self._starting.kind != "hot":
            return False
        targets = [number for kind, number in load.targets if kind == "replica"]
        return bool(targets) and all(
            self._is_asleep(load, self._placement.gpus_of[target]) for target in targets
        )

    def _place_of(self, gpus: tuple[int, ...]) -> int:
        assert self._starting is not None
        return _EVERYWHERE if self._starting.compile_cache == "shared" else gpus[0] // self._per_host

    def _cache_of(self, part: Part, gpus: tuple[int, ...]) -> Compiled:
        return self._place_of(gpus), part.model, part.first, part.last, len(gpus)

    def _check_of(self, gpus: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """The key of the P2P check's file: on the host, by the host's own GPU numbers."""
        return self._place_of(gpus), tuple([gpu % self._per_host for gpu in gpus])

    def _is_checked(self, gpus: tuple[int, ...]) -> bool:
        assert self._starting is not None
        kept = self._starting.compile_cache
        return kept == "present" or (kept != "none" and self._check_of(gpus) in self._checked)

    def _has(self, cache: Compiled, now_s: float) -> bool:
        assert self._starting is not None
        kept = self._starting.compile_cache
        if kept in ("present", "none"):
            return kept == "present"
        under_way = [one for one, done_s in self._compiling.values() if done_s <= now_s]
        return cache in self._compiled or cache in under_way
