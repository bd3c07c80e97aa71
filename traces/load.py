"""A trace by name: the one entry point for commands."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from traces.errors import TraceError
from traces.fetching.sources import SOURCES
from traces.find import FILE, find_trace
from traces.formats import format_named, format_of
from traces.synthetic.registry import SYNTHETIC
from traces.workload import Workload


def load(
    name: str,
    *,
    path: str | os.PathLike[str] | None = None,
    format: str | None = None,
    seed: int = 0,
    environ: Mapping[str, str] = os.environ,
    **options: Any,
) -> Workload:
    """The workload ``name``: drawn from ``seed`` if it is synthetic, otherwise read from a file.

    path: a file instead of the search; needed for the name ``file``. format: how to read it (default: what
    is published under that name; for ``file`` what its first bytes say). options: parameters of the synthetic
    trace, or of the format's reader; None is the same as left out.
    Raises TraceError on an unknown name, a missing or damaged file, or an option that does not apply.
    """
    if name in SYNTHETIC:
        for key, value in (("path", path), ("format", format)):
            if value is not None:
                raise TraceError(
                    f"trace.{key}={value} does not apply to the drawn trace {name}: leave it out"
                )
        return _drawn(name, seed, options)
    file = find_trace(name, path, environ=environ)
    if format is not None:
        chosen = format_named(format)
    else:
        columns = options.get("columns")
        chosen = format_of(file.path, columns) if name == FILE else format_named(SOURCES[name].format)
    shown = None if name == FILE else name
    return chosen.read(file.path, name=shown, seed=seed, options=options)


def synthetic_parameters(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a synthetic trace, seed left out."""
    parameters = inspect.signature(SYNTHETIC[name], eval_str=True).parameters
    return {key: value for key, value in parameters.items() if key != "seed"}


def _drawn(name: str, seed: int, options: Mapping[str, Any]) -> Workload:
    draw: Callable[..., Workload] = SYNTHETIC[name]
    options_given = {key: value for key, value in options.items() if value is not None}
    known = synthetic_parameters(name)
    for key, value in options_given.items():
        if key not in known:
            takes = ", ".join(f"trace.{option}" for option in known)
            raise TraceError(f"trace.{key}={value} does not apply to {name}: leave it out (it takes {takes})")
    return draw(seed, **options_given)
