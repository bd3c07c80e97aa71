"""The time to start an instance besides its parameters, for ``servetwin support``."""

from hwmodels.errors import HardwareError
from hwmodels.loading.starting import KINDS, Terms, after_weights, before_weights, seconds_of
from hwmodels.models.llm_shape import LlmShape
from servetwin.config.compose.starting import start_terms_of
from servetwin.config.config import EngineConfig


def start_lines(engine: EngineConfig, llm: LlmShape, tp: int) -> list[str]:
    """Return a line per kind of start, with its terms, and one with the sources of those that are not 0.

    No term depends on the GPU.
    """
    try:
        terms = start_terms_of(engine)
    except HardwareError as error:
        return [f"unless a run says, that of {engine.start_up} in loaders.yaml; {error}"]
    seconds = terms.of(llm.layers, tp, engine.max_num_seqs)
    cold = seconds_of((*before_weights("cold", seconds, False), *after_weights("cold", seconds, False)))
    lines = []
    for kind in KINDS:
        parts = (*before_weights(kind, seconds, True), *after_weights(kind, seconds, True))
        first = f"; the first on a host {cold:.3g} s" if kind == "cold" and cold > seconds_of(parts) else ""
        lines.append(f"{kind}: {seconds_of(parts):.3g} s and its parameters{_told(parts)}{first}")
    said: dict[str, list[str]] = {}
    for name, source in terms.sources.items():
        if getattr(terms, name):
            said.setdefault(source, []).append(name)
    return [
        *lines,
        f"unless a run says which, that of {engine.start_up} in loaders.yaml",
        *(f"{', '.join(names)}: {source}" for source, names in said.items()),
    ]


def _told(parts: Terms) -> str:
    told = " + ".join(f"{name.replace('_', ' ')} {seconds:.3g}" for name, seconds in parts if seconds)
    return f": {told}" if told else ""
