"""What policies may assume about speed: built once by the experiment, the same in both worlds."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEstimates:
    """Rates of one replica of one model.

    ``prefill_tokens_per_s`` at a full prefill batch; ``decode_step_s`` at ``decode_sequences`` sequences of
    ``decode_context_tokens`` each; ``kv_tokens`` the KV memory of one replica. ``decode_first_s``: a step of
    one sequence of one token; None: not known.
    """

    model: str
    prefill_tokens_per_s: float
    decode_step_s: float
    decode_sequences: int
    decode_context_tokens: int
    kv_tokens: int
    decode_first_s: float | None = None

    def step_s(self, sequences: int, context_tokens: int) -> float:
        """A decode step: between both known ones in the mean of sequences and of tokens, and beyond."""
        most_tokens = self.decode_sequences * self.decode_context_tokens
        share = (sequences / self.decode_sequences + context_tokens / most_tokens) / 2
        first_s = self.decode_first_s or 0.0
        return first_s + share * (self.decode_step_s - first_s)


@dataclass(frozen=True, slots=True)
class Estimates:
    """One entry per served model, and the source of the numbers."""

    models: tuple[ModelEstimates, ...]
    source: str

    def of(self, model: str) -> ModelEstimates:
        """The estimates of ``model``; raises KeyError if the experiment does not serve it."""
        for entry in self.models:
            if entry.model == model:
                return entry
        raise KeyError(model)

    def as_dict(self) -> dict[str, object]:
        """Plain data, for the journal header; without ``decode_first_s``, which older journals lack."""
        plain = asdict(self)
        for entry in plain["models"]:
            del entry["decode_first_s"]
        return plain
