"""What a server's own log says: how long it loaded parameters, compiled and warmed up, and its device."""

import re
from collections.abc import Mapping
from typing import Final

# Lines of vLLM (0.6 to 0.32), each with seconds.
_LINES: Final[Mapping[str, re.Pattern[str]]] = {
    "read_parameters_s": re.compile(r"Loading weights took ([\d.]+) s"),
    "load_model_s": re.compile(r"Model loading took .*?([\d.]+) seconds"),
    "compile_s": re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s"),
    "capture_graphs_s": re.compile(r"Graph capturing finished in ([\d.]+) s"),
    "init_engine_s": re.compile(r"init engine \(.*?\) took ([\d.]+) s"),
}
# In the line in which vLLM says the configuration of its engine.
_DEVICE: Final = re.compile(r"\bdevice_config=(\w+)")


def device_of(log: str) -> str | None:
    """Return the device of a vLLM engine (``cpu``, ``cuda``); None if the log does not say it."""
    found = _DEVICE.search(log)
    return found[1] if found else None


def phases_of(log: str) -> dict[str, float]:
    """Return the seconds of each phase that the log names; of several processes the longest."""
    found: dict[str, float] = {}
    for name, pattern in _LINES.items():
        seconds = [_number(text) for text in pattern.findall(log)]
        if seconds:
            found[name] = max(seconds)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
