"""The meta.yaml of an LLMServingSim profile: its GPU, model shape, engine and number format."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodels.errors import HardwareError
from hwmodels.importers.request import ImportRequest, device_notes
from hwmodels.importers.tables import read_bytes
from hwmodels.models.llm_shape import LlmShape
from hwmodels.yaml_text import MOST_YAML_BYTES, users_yaml


@dataclass(frozen=True, slots=True)
class Meta:
    """The file's entries; ``sha256`` None if there is no such file."""

    path: Path
    sha256: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)

    def engine_version(self, request: ImportRequest) -> str:
        """The version in the file, or without a file the user's."""
        measured, given = self.entries.get("vllm_version"), request.engine_version
        if measured is None and given is None:
            raise HardwareError(
                f"{self.path} gives no vllm_version; write engine_version=VERSION with the vLLM version that "
                "these tables were measured with"
            )
        if measured is not None and given is not None and str(measured) != given:
            raise HardwareError(
                f"{self.path} has vllm_version {measured}; leave engine_version={given} out, or write "
                f"engine_version={measured}"
            )
        return str(given if measured is None else measured)

    def precision(self) -> str:
        """The number format; bf16 when there is no file."""
        return str(self.entries.get("variant", "bf16"))

    def notes(self, request: ImportRequest, llm: LlmShape) -> tuple[str, ...]:
        """Unverified assumptions; HardwareError if the file is of another GPU or model."""
        if self.sha256 is None:
            return (f"no {self.path.name}: GPU, model and engine version are the user's, bf16 is assumed",)
        self._require_shape(llm)
        device = str(self.entries.get("gpu", self.entries.get("hardware", "a device without a name")))
        return device_notes(request.gpu, device, self.path)

    def says_no_skew(self) -> bool:
        """Whether the file states that skewed batches were not profiled."""
        flags = (self.entries.get(key) for key in ("skew_profile", "skew_fit"))
        return any(isinstance(flag, Mapping) and flag.get("enabled") is False for flag in flags)

    def _require_shape(self, llm: LlmShape) -> None:
        """Require that the overrides are one rank's share of the model at a measured tensor-parallel size."""
        settings = self.entries.get("engine_effective")
        shares = settings.get("hf_overrides") if isinstance(settings, Mapping) else None
        if not isinstance(shares, Mapping):
            return
        whole = {
            "num_attention_heads": llm.heads,
            "num_key_value_heads": llm.kv_heads,
            "intermediate_size": llm.intermediate,
            "vocab_size": llm.vocab,
        }
        degrees = self.entries.get("tp_degrees") or [1]
        known = {name: full for name, full in whole.items() if name in shares}
        if any(all(shares[name] * tp == full for name, full in known.items()) for tp in degrees):
            return
        measured = ", ".join(f"{name} {shares[name]}" for name in known)
        raise HardwareError(
            f"{self.path} has {measured} per rank, which is not the shape of {llm.name}; "
            f"write the model it was measured for ({self.entries.get('model', 'not named')})"
        )


def read_meta(path: Path) -> Meta:
    """The file at ``path``, or empty entries if there is none."""
    import yaml  # type: ignore[import-untyped, unused-ignore]

    if not path.exists():
        return Meta(path)
    content = read_bytes(path, MOST_YAML_BYTES)
    try:
        entries = users_yaml(content)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HardwareError(f"{path} is not YAML ({reason}); take the file as it was published") from error
    if not isinstance(entries, Mapping):
        raise HardwareError(f"{path} holds no keys; take the file as it was published")
    return Meta(path, hashlib.sha256(content).hexdigest(), entries)
