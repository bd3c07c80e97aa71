"""A GPU of the user's own: a YAML file with the numbers of its datasheet, each with its source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.reading import read_limited
from hwmodels.yaml_text import MOST_YAML_BYTES, users_yaml

NEEDED: Final = ("memory_bytes", "memory_bandwidth_bytes_per_s", "flops_per_s", "activation_reserve_bytes")
OPTIONAL: Final = (
    "l2_cache_bytes", "compute_efficiency", "power_limit_w", "idle_w", "sms", "fp8_flops_per_s",
    "fp4_flops_per_s", "int8_flops_per_s",
)  # fmt: skip
SAME_AS: Final = "all_reduce"
EXAMPLE: Final = "memory_bytes: {value: 80.0e+9, source: datasheet}"
OWN: Final = (
    f"the path of a .yaml file of your own with {', '.join(NEEDED)}, each as {{value: NUMBER, source: TEXT}}"
)
_WHOLE: Final = ("memory_bytes", "activation_reserve_bytes", "l2_cache_bytes", "sms")
_LARGEST: Final = 1e18


def is_gpu_file(text: str) -> bool:
    """Whether a GPU's name is the path of a file of the user's own."""
    return text.endswith((".yaml", ".yml"))


def gpu_entry(text: str) -> Mapping[str, Any]:
    """The entry in the file at that path, as one of gpus.yaml. HardwareError naming file, key and remedy.

    The file of a cluster may have these numbers under its ``gpu``, beside the links of its hosts.
    """
    found = _read(Path(text).expanduser(), text)
    linked: dict[str, Any] = {}
    if isinstance(found.get("gpu"), dict):
        linked, found = found.get("nvlink") or {}, found["gpu"]
    known = (*NEEDED, *OPTIONAL, SAME_AS)
    if unknown := [key for key in found if key not in known]:
        raise HardwareError(f"{text} has the unknown key {unknown[0]!r}; write only {', '.join(known)}")
    if missing := [key for key in NEEDED if key not in found]:
        raise HardwareError(f"{text} lacks {missing[0]}; write {missing[0]}: {{value: NUMBER, source: TEXT}}")
    if ("power_limit_w" in found) != ("idle_w" in found):
        raise HardwareError(f"{text} has one of power_limit_w and idle_w; write both or neither")
    entry = {key: _number(text, key, found[key]) for key in found if key != SAME_AS}
    if isinstance(linked, dict) and linked:
        entry["nvlink"] = {"value": True, "source": str(linked.get("source"))}
    return entry | ({SAME_AS: _all_reduce(text, found[SAME_AS])} if SAME_AS in found else {})


def _read(path: Path, text: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    try:
        found = users_yaml(read_limited(path, MOST_YAML_BYTES), aliases=False)
    except OSError as error:
        raise HardwareError(
            f"{text} cannot be read ({error.strerror}); write a GPU of servetwin support, or {OWN}"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise HardwareError(f"{text} is no YAML ({reason}); write lines such as {EXAMPLE}") from error
    if not isinstance(found, dict):
        raise HardwareError(f"{text} has no numbers of a GPU; write lines such as {EXAMPLE}")
    return found


def _number(text: str, key: str, value: Any) -> dict[str, Any]:
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    number: Any = given.get("value")
    source = given.get("source")
    if type(number) not in (int, float) or not isinstance(source, str) or not source.strip():
        raise HardwareError(f"{text}: {key} is not {{value: NUMBER, source: TEXT}}; write such as {EXAMPLE}")
    if not 0 < number <= (1 if key == "compute_efficiency" else _LARGEST):
        raise HardwareError(f"{text}: {key} is {number:g}, out of range; write a number above 0")
    told = f"{' '.join(source.split())} ({Path(text).name})"
    return {"value": int(number) if key in _WHOLE else float(number), "source": told}


def _all_reduce(text: str, value: Any) -> dict[str, str]:
    given = value if isinstance(value, dict) else {}
    if set(given) != {"same_as", "source"} or not all(isinstance(one, str) for one in given.values()):
        raise HardwareError(
            f"{text}: all_reduce is not {{same_as: GPU, source: TEXT}}; write a GPU of the catalogue with "
            "the same links, or leave it out and use model.tp=1"
        )
    return given
