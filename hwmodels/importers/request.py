"""The request to an importer, and the check whether the device in a file is the named GPU."""

import re
from dataclasses import dataclass
from pathlib import Path

from hwmodels.catalogue import gpu_names
from hwmodels.errors import HardwareError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """``path``: the file or folder of the format. ``gpu`` and ``llm``: catalogue names.

    ``engine_version`` is needed if the files do not state it. ``aiconfigurator``: the folder of one GPU in
    that format, for what another format did not measure, or for prefill attention if that of path is
    impossible.
    """

    path: Path
    gpu: str
    llm: str
    tp: int
    engine_version: str | None = None
    aiconfigurator: Path | None = None


def device_notes(gpu: str, device: str, path: Path) -> tuple[str, ...]:
    """Refuse ``gpu`` if ``device``, as written in ``path``, is another GPU of the catalogue.

    A device that matches no catalogue name is accepted as the user states, with a note.
    """
    fitting = [name for name in gpu_names() if device_fits(name, device)]
    if gpu in fitting:
        return ()
    if fitting:
        raise HardwareError(f"{path} was measured on {device}, not on {gpu}; write gpu={fitting[0]}")
    return (f"the device {device!r} was taken for {gpu} as given by the user",)


def device_fits(gpu: str, device: str) -> bool:
    """Whether every part of a catalogue name ('a100', '80g') is in the device's own name.

    A part may be split between letters and digits there ('RTX 4090'), and no digit follows it: 'a10' is not
    in 'A100'.
    """
    return all(re.search(_pattern(part), device.lower()) for part in gpu.split("_"))


def _pattern(part: str) -> str:
    torn = re.sub(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])", "[^a-z0-9]*", part)
    return torn + (r"(?![0-9])" if part[-1].isdigit() else "")
