"""The source of a run's step times, for summary.json."""

from typing import Any

from servetwin.assemble.hardware import Hardware


def step_time_section(hardware: Hardware) -> dict[str, Any]:
    """Return the model of the step times, its error, the engine's share, and whether a profile was forced."""
    step, overhead, profile = hardware.step, hardware.overhead, hardware.profile
    section: dict[str, Any] = {
        "kind": step.source.partition(":")[0],
        "source": step.source,
        "error_band": step.error_band,
        "overhead": {
            "step_s": overhead.step_s,
            "per_sequence_s": overhead.per_sequence_s,
            **({"sort_s": overhead.sort_s} if overhead.sort_s else {}),
            "graph_batches_up_to": max(overhead.graph_batches, default=0),
            "source": overhead.source,
        },
    }
    if step.labels:
        section["labels"] = list(step.labels)
    if profile is not None:
        section["profile"] = {
            "path": profile.path,
            "sha256": profile.digest,
            "forced": list(profile.forced),
            "files": [{"name": name, "sha256": digest} for name, digest in profile.files],
            **({"noisy": list(profile.noise)} if profile.noise else {}),
        }
    return section
