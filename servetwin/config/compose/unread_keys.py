"""Refuses keys that were given and that nothing in the run reads, with what would read them.

Keys declare their readers (``servetwin.config.key``). A value in a saved config.yaml is never refused, only
what the user wrote for this command.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from servetwin.config.config import RunConfig
from servetwin.config.key import Reader, declared_keys
from servetwin.config.overrides import Override, canonical, echo
from serving.vocabulary.errors import UserError
from traces.load import synthetic_parameters


def _takes_arrivals(config: RunConfig) -> bool:
    """Return whether the trace's rate counts, or the trace cannot be drawn without one."""
    if config.models.name != "zipf" or (config.models.rate_per_s or config.trace.utilization) is None:
        return True
    rate = synthetic_parameters(config.trace.name).get("rate_per_s")
    return rate is not None and rate.default is inspect.Parameter.empty


# Parameters of drawn traces, which are no fields of the configuration.
_PARAMETERS: Final[Mapping[str, tuple[Reader, ...]]] = {
    "trace.rate_per_s": (
        Reader(_takes_arrivals, "runs whose arrivals are the trace's", "leave out models.rate_per_s"),
    )
}


def readers() -> dict[str, tuple[Reader, ...]]:
    """Map every key that not all runs read to its readers, each of which must be in the run."""
    declared = {path: key.read_by for path, key in declared_keys(RunConfig).items() if key.read_by}
    return {**declared, **_PARAMETERS}


def refuse_unread(words: Iterable[Override], config: RunConfig) -> None:
    """Raise UserError for the first word that the run does not read."""
    for word in words:
        if why := why_unread(canonical(word.key), config):
            raise UserError(f"{word} would change nothing: {why}")


def refuse_if_none_reads(
    keys: Iterable[str],
    configs: Iterable[RunConfig | None],
    runs: str,
    read_by: Mapping[str, tuple[Reader, ...]],
) -> None:
    """Raise UserError for a key that none of several runs reads; composes no more of them than needed.

    ``configs``: None for a run that is refused or not composed, which may read every key. ``runs``: what
    they are, such as "this sweep". ``read_by``: the readers of keys.
    """
    reasons = dict.fromkeys((key for key in keys if key in read_by), "")
    for config in configs if reasons else ():
        if config is None:
            return
        reasons = {key: reason for key in reasons if (reason := why_unread(key, config, read_by))}
        if not reasons:
            return
    for key, reason in reasons.items():
        if reason:
            raise UserError(f"{key} would change nothing in {runs}: {reason}")


def why_unread(key: str, config: RunConfig, read_by: Mapping[str, tuple[Reader, ...]] | None = None) -> str:
    """Return what reads the key and what to write, if this run does not read it; "" if it does."""
    for reader in (readers() if read_by is None else read_by).get(key, ()):
        if not reader.reads(config):
            system = f" (this is system={config.system.name})" if key.startswith("system.") else ""
            return f"it is read only by {reader.of}{system}; leave it out, or {reader.instead}"
    return ""


def refuse_others(words: Iterable[str], read: Sequence[str], command: str) -> None:
    """Raise UserError for a word whose key or group ``command`` does not read.

    ``read``: the keys that it reads; one that ends in a dot stands for all that begin so.
    """
    for word in words:
        key = word.partition("=")[0]
        if not any(key.startswith(one) if one.endswith(".") else key == one for one in read):
            raise UserError(
                f"{echo(word)} would change nothing: {command} does not read {echo(key)}; leave it out "
                f"(it reads {', '.join(read)})"
            )
