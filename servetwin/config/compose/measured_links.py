"""``cluster.links=measured``: cluster=local gets the rates that ``realexec calibrate`` measured."""

from pathlib import Path
from typing import Any, Final

from servetwin.config.config import MEASURED
from servetwin.config.overrides import echo
from servetwin.config.read_file import json_in
from servetwin.config.workers_config import transports_asked
from serving.vocabulary.errors import UserError

CALIBRATION: Final = "calibration.json"
SOURCE, HOST = "parameters from their source", "parameters from the host's memory"
KINDS: Final = ("nic", "ssd", "pcie")  # links of the cluster that were measured
_BITS_PER_GBIT: Final = 1e9


def fill_measured_links(tree: dict[str, Any], profile: str | None) -> None:
    """Write the measured rates unless the user set them, so that a saved configuration contains them.

    ``profile``: engine.profile. Raises UserError if there is no source for them.
    """
    cluster = tree["cluster"]
    if cluster["links"] != MEASURED:
        return
    unset = [kind for kind in KINDS if cluster[f"{kind}_gbps"] is None]
    if not unset:
        return  # a saved configuration, already filled
    name = cluster["name"]
    if cluster["topology"] is None or not (name == "local" or name.startswith("local_")):
        raise UserError(
            f"cluster.links={MEASURED} is of the workers of one machine, and cluster={name} has no links of "
            "theirs: write cluster=local in a real run, and a size such as cluster=local_4x1 in a simulation"
        )
    rates = _measured_rates(_record(profile), tree["transport"], tree["device"], str(profile))
    for kind in unset:
        cluster[f"{kind}_gbps"] = rates[kind] * 8 / _BITS_PER_GBIT


def _record(profile: str | None) -> dict[str, Any]:
    if profile is None:
        raise UserError(
            f"cluster.links={MEASURED} has nothing to take rates from: write engine.profile=DIR, made with "
            "realexec calibrate"
        )
    try:
        path = Path(profile).expanduser()
        path = path if path.is_dir() else path.parent
        record = json_in(path / CALIBRATION)
    except (OSError, RuntimeError, ValueError):
        record = None
    if not isinstance(record, dict):
        raise UserError(
            f"engine.profile={echo(profile)} has no {CALIBRATION} that can be read: write a profile made "
            f"with realexec calibrate, or leave cluster.links={MEASURED} out"
        )
    return record


def _measured_rates(
    record: dict[str, Any], transport: str | None, device: str, profile: str
) -> dict[str, float]:
    """Return bytes/s between workers by the run's transport, and of parameters from source and host."""
    try:
        links, parameters = record["links"], record["parameters"]
        asked = transports_asked(transport, device)
        measured_links = [links[name] for name in asked if "missing" not in links.get(name, {"missing": ""})]
        kinds = {"nic": measured_links[0], "ssd": parameters[SOURCE], "pcie": parameters[HOST]}
        return {kind: float(one["median_bytes_per_s"]) for kind, one in kinds.items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        by = "any transport" if transport is None else f"transport={transport}"
        raise UserError(
            f"{CALIBRATION} of engine.profile={echo(profile)} has no rates of links by {by}: measure again "
            "with realexec calibrate"
        ) from None
