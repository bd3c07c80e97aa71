"""The terms of an engine start: seconds besides its parameters, by version, layers, GPUs, graphs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from hwmodels.catalogue import read_yaml
from hwmodels.catalogue.by_version import entries_up_to
from hwmodels.errors import HardwareError
from hwmodels.loading.startup import StartUp, load_start_up

START_UP_FILE: Final = "start_up.yaml"
_DEFAULT_MAX_NUM_SEQS: Final = 256  # vLLM's; twice this number bounds the sizes of its graphs


@dataclass(frozen=True, slots=True)
class Graphs:
    """Which CUDA graphs an engine captures: of 1, 2, 4, 8, 16 ... 248, then in ``step`` up to ``largest``.

    modes: 2 if graphs of whole decode steps are captured besides the piecewise ones.
    """

    largest: int
    step: int
    modes: int
    source: str

    def count(self, max_num_seqs: int) -> int:
        """Number of graphs that an engine with batches of up to ``max_num_seqs`` sequences captures."""
        if not self.modes:
            return 0
        sizes: tuple[int, ...] = (1, 2, 4, *range(8, 256, 8), *range(256, self.largest + 1, self.step))
        most = min(self.largest, 2 * max_num_seqs)
        piecewise = sum(size <= most for size in sizes)
        whole = sum(size <= min(most, max_num_seqs) for size in sizes) if self.modes > 1 else 0
        return piecewise + whole


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerms:
    """The terms of one engine and version, as in start_up.yaml; sources: term -> who measured it."""

    engine: str
    process_s: float
    context_s: float
    communicator_s: float
    p2p_check_s_per_pair: float
    compile_s_per_layer: float
    compile_cached_s_per_layer: float
    profiling_s: float
    graphs_s: float
    graph_s_per_layer: float
    graphs: Graphs
    first_request_s: float
    wake_s: float
    sleep_bytes_per_s: float
    sources: Mapping[str, str]

    def of(self, layers: int, ranks: int, max_num_seqs: int = _DEFAULT_MAX_NUM_SEQS) -> "StartSeconds":
        """Seconds for a model of ``layers`` on ``ranks`` GPUs."""
        graphs = self.graphs.count(max_num_seqs)
        return StartSeconds(
            process=self.process_s,
            context=self.context_s,
            distributed=self.communicator_s if ranks > 1 else 0.0,
            p2p_check=self.p2p_check_s_per_pair * ranks * ranks if ranks > 1 else 0.0,
            compile_whole=self.compile_s_per_layer * layers,
            compile_cached=self.compile_cached_s_per_layer * layers,
            profiling=self.profiling_s,
            graphs=self.graphs_s + self.graph_s_per_layer * layers * graphs if graphs else 0.0,
            first_request=self.first_request_s,
            wake=self.wake_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSeconds:
    """Seconds of every term for one model on one number of GPUs; the kind of start decides which count.

    p2p_check: only if the host has no stored result; compile_whole: without a cache, else compile_cached.
    """

    process: float
    context: float
    distributed: float
    p2p_check: float
    compile_whole: float
    compile_cached: float
    profiling: float
    graphs: float
    first_request: float
    wake: float

    @property
    def after_weights(self) -> float:
        """The least time from the last byte to the first step, with everything cached."""
        return self.compile_cached + self.profiling + self.graphs + self.first_request


def terms_from(startup: StartUp, name: str) -> StartTerms:
    """The terms of an engine that only loaders.yaml knows: no compilation, no graphs; it sleeps as vLLM."""
    asleep = load_start_terms("vllm")
    sources = dict.fromkeys(_TERMS, startup.source)
    return StartTerms(
        engine=name,
        process_s=startup.process_s,
        context_s=startup.cuda_context_s,
        communicator_s=startup.connections_s,
        p2p_check_s_per_pair=0.0,
        compile_s_per_layer=0.0,
        compile_cached_s_per_layer=0.0,
        profiling_s=startup.engine_init_s,
        graphs_s=0.0,
        graph_s_per_layer=0.0,
        graphs=Graphs(0, 1, 0, startup.source),
        first_request_s=0.0,
        wake_s=asleep.wake_s,
        sleep_bytes_per_s=asleep.sleep_bytes_per_s,
        sources=sources | {key: f"vllm: {asleep.sources[key]}" for key in ("wake_s", "sleep_bytes_per_s")},
    )


def load_start_terms(engine: str, version: str | None = None) -> StartTerms:
    """The terms of an engine of loaders.yaml at a version (None, or one that is no number: the newest).

    Raises HardwareError with the existing names.
    """
    startup = load_start_up(engine)
    entries = read_yaml(START_UP_FILE).get(engine)
    if entries is None:
        return terms_from(startup, engine)
    known = entries_up_to(entries, version)
    if not known:
        raise HardwareError(
            f"{START_UP_FILE} has {engine} only from {entries[0]['from']} on, not {version}: write a later "
            "engine.version"
        )
    entry = _whole(known[-1], entries)
    values: dict[str, Any] = {name: entry[name]["value"] for name in _TERMS if name != "graphs"}
    sources = {name: entry[name]["source"] for name in _TERMS}
    return StartTerms(engine=engine, graphs=Graphs(**entry["graphs"]), sources=sources, **values)


def _whole(entry: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """An entry completed with what it inherits from its base."""
    base = [other for other in entries if other["from"] == entry.get("base")]
    return {**base[0], **entry} if base else entry


_TERMS: Final = tuple(field.name for field in fields(StartTerms) if field.name not in ("engine", "sources"))
