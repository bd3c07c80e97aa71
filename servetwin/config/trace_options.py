"""The options of ``trace=``: every published trace, every drawn one and ``file``, from their registries.

A trace has no option file, which would repeat the registries: its name, source and parameters are in
traces/fetching/sources.yaml, traces.formats and traces.synthetic.registry.
"""

import inspect
import typing
from collections.abc import Collection, Mapping
from typing import Any, Final

from servetwin.config.overrides import Override, Wanted
from servetwin.config.trace_config import DEFAULTS
from traces.fetching.sources import SOURCES
from traces.find import FILE
from traces.formats import FORMATS
from traces.load import synthetic_parameters
from traces.synthetic.registry import SYNTHETIC

# A first run should be short; azure_conv_like's own default is as long as the file that it imitates. With
# stages of rates no default applies. (The module of those defaults needs numpy; --help does not load it.)
_PARAMS: Final[dict[str, dict[str, Any]]] = {
    name: {"requests": 10_000} for name in ("azure_conv_like", "poisson", "gamma")
}
RATES: Final = "rates"
"""Parameter of stages of rates, which few traces have."""
RATES_TRACES: Final = "trace=azure_conv_like (its lengths), trace=poisson or trace=gamma beside it"
# Keys that replace a drawn trace's parameter for a recorded trace.
INSTEAD_FOR_RECORDED: Final = {
    "requests": "trace.limit={} for its first requests",
    RATES: RATES_TRACES,
    "rate_per_s": "trace.rate_scale=FACTOR or trace.utilization=SHARE to rescale its arrivals",
}
STATED_ENDS: Final = ("requests", "duration_s", "window_s", RATES)
"""Keys that say where a trace ends, in whatever order they are written."""
_PLAIN: Final = (int, float, str, bool)


def trace_names() -> list[str]:
    """Return every option, recorded ones first."""
    return [*SOURCES, FILE, *SYNTHETIC]


def trace_option(choice: Override) -> tuple[Override, dict[str, Any]]:
    """Return the chosen trace as an option, and what its option file would contain."""
    name = choice.text
    node = {"name": name, "synthetic": name in SYNTHETIC, **DEFAULTS, "params": default_parameters(name)}
    return choice, node


def trace_parameters(name: str) -> dict[str, inspect.Parameter]:
    """Return the trace's parameters: its own if drawn, those of its format's reader if recorded."""
    if name in SYNTHETIC:
        parameters = synthetic_parameters(name)
    else:
        formats = [FORMATS[SOURCES[name].format]] if name in SOURCES else FORMATS.values()
        parameters = {key: value for format in formats for key, value in format.options.items()}
    return {key: value for key, value in parameters.items() if _kinds(value)}


def wanted_parameter(name: str, parameter: str) -> Wanted:
    """Return the type of a trace's parameter; null means the function's own default."""
    kinds = _kinds(trace_parameters(name)[parameter])
    return Wanted(kinds[0] if len(kinds) == 1 else Any, optional=True)


def default_parameters(name: str) -> dict[str, Any]:
    """Return each parameter's default value; null if the function decides."""
    defaults = {key: _shown_default(name, key, value) for key, value in trace_parameters(name).items()}
    return defaults | _PARAMS.get(name, {})


def drop_default_limit(trace: dict[str, Any], written: Mapping[str, str]) -> None:
    """Drop the default ``limit`` of real runs where the user states how long the trace is.

    ``written``: the user's words by key.
    """
    stated = {written.get(f"trace.{key}", "null") for key in STATED_ENDS}
    if stated != {"null"} and "trace.limit" not in written:
        trace["limit"] = None


def drop_default_requests(params: dict[str, Any], written: Collection[str]) -> None:
    """Drop the number of ``requests`` that is not among the ``written`` parameters beside ``rates``."""
    if RATES in written and "requests" not in written and "requests" in params:
        params["requests"] = None


def _kinds(parameter: inspect.Parameter) -> list[type]:
    """Return the plain types it takes; none for objects of Python code, such as a function."""
    annotation = parameter.annotation
    if typing.get_origin(annotation) is typing.Literal:
        return [str]  # the function defines the words
    options = getattr(annotation, "__args__", (annotation,))
    return [option for option in options if option in _PLAIN]


def _shown_default(name: str, key: str, parameter: inspect.Parameter) -> Any:
    """Return null if the function decides: for files of any format, and for rates that a run may set."""
    if name == FILE or key == "rate_per_s" or parameter.default is inspect.Parameter.empty:
        return None
    return parameter.default if type(parameter.default) in _PLAIN else None
