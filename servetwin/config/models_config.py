"""How many models a run hosts, how their requests arrive, and which settings contradict each other."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hwmodels.catalogue import llm_named, load_llm
from hwmodels.catalogue.stacks import is_stack
from hwmodels.errors import HardwareError
from servetwin.config.key import COUNT, POSITIVE, Range, key
from servetwin.config.trace_config import TraceConfig
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from traces.many import Bursts

MOST_MODELS: Final = 1000
_ZIPF: Final = ("zipf",)
_RATES: Final = ("rate_scale", "utilization", "prefill_share", "peak_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """The models of a run: ``one`` (that of ``model=``), or several, with arrivals drawn or the trace's."""

    name: str = key("the chosen option")
    count: int | None = key(
        "hosted models",
        default=None,
        within=Range(low=2, high=MOST_MODELS),
        options=("of_trace", "zipf"),
        required=True,
    )
    shapes: str | None = key(
        "the models that they copy, in turns: names of the catalogue joined by `+`, with `:TP` if not"
        " `model.tp`, such as `llama3_8b+mistral_24b:2`; null: `model=`",
        default=None,
        options=("of_trace", "zipf"),
    )
    zipf: float | None = key(
        "popularity is 1 / rank^`zipf`; 0: all alike",
        default=None,
        within=Range(low=0, high=10),
        options=_ZIPF,
        required=True,
    )
    rate_per_s: float | None = key(
        "requests per second of all models together; null: the trace's mean rate",
        default=None,
        within=POSITIVE,
        options=_ZIPF,
    )
    gap_cv: float | None = key(
        "coefficient of variation of a model's gaps while its rate is steady; 1 is Poisson",
        default=None,
        within=Range(low=1e-3, high=1e3),
        options=_ZIPF,
        required=True,
    )
    burst_factor: float | None = key(
        "rate during a burst as a multiple of the base rate; 1: no bursts",
        default=None,
        within=Range(low=1, high=1e6),
        options=_ZIPF,
        required=True,
    )
    burst_ramp_s: float | None = key(
        "seconds in which a burst rises", default=None, within=POSITIVE, options=_ZIPF, required=True
    )
    burst_hold_s: float | None = key(
        "seconds that a burst lasts at its height",
        default=None,
        within=POSITIVE,
        options=_ZIPF,
        required=True,
    )
    burst_decay_s: float | None = key(
        "seconds in which a burst falls", default=None, within=POSITIVE, options=_ZIPF, required=True
    )
    quiet_s: float | None = key(
        "mean seconds between two bursts of a model (exponential)",
        default=None,
        within=POSITIVE,
        options=_ZIPF,
        required=True,
    )
    requests: int | None = key(
        "keep only this many first requests; null: as many as the trace has, or no limit with "
        "`models.duration_s`",
        default=None,
        within=COUNT,
        options=_ZIPF,
    )
    duration_s: float | None = key(
        "keep only requests that arrive before this time", default=None, within=POSITIVE, options=_ZIPF
    )

    @property
    def bursts(self) -> "Bursts":
        """Return the arrival process of each model of ``models=zipf``."""
        from traces.many import Bursts  # imports drawing code, which other runs do not need

        assert self.gap_cv is not None and self.burst_factor is not None and self.burst_ramp_s is not None
        assert self.burst_hold_s is not None and self.burst_decay_s is not None and self.quiet_s is not None
        return Bursts(
            gap_cv=self.gap_cv,
            factor=self.burst_factor,
            ramp_s=self.burst_ramp_s,
            hold_s=self.burst_hold_s,
            decay_s=self.burst_decay_s,
            quiet_s=self.quiet_s,
        )


ONE: Final = ModelsConfig(name="one")


def shapes_of(shapes: str | None, model: str, tp: int) -> tuple[tuple[str, int], ...]:
    """Return (catalogue name, GPUs per replica) of each of ``shapes``; the chosen model's if None."""
    if shapes is None:
        return ((model, tp),)
    return tuple(_shape(word.strip(), shapes, tp) for word in shapes.split("+"))


def _shape(word: str, shapes: str, tp: int) -> tuple[str, int]:
    name, colon, digits = word.partition(":")
    good = digits.isdecimal() and digits.isascii() and 0 < int(digits[:4]) <= 1024 if colon else True
    if not name or not good:
        raise UserError(
            f"models.shapes={shapes} has '{word}': write names of the catalogue with + between, each with "
            "the GPUs of a replica behind it where they are not model.tp, such as "
            "models.shapes=llama3_8b+mistral_24b:2"
        )
    return llm_named(name), int(digits) if colon else tp


def check_models(models: ModelsConfig, trace: TraceConfig, kind: str) -> None:
    """Refuse settings that contradict each other, with a UserError."""
    if kind == "realexec" and any(tp != 1 for _, tp in shapes_of(models.shapes, "", 1)):
        raise UserError(
            f"models.shapes={models.shapes} has replicas of several GPUs, and a real worker is one: write "
            "names without a number behind them"
        )
    if models.name == "zipf" and trace.params.get("rates") is not None:
        raise UserError(
            "trace.rates does nothing with models=zipf, whose models have arrivals of their own: write "
            "models.rate_per_s=NUMBER, or models=of_trace with a trace that has models"
        )
    rates = [f"trace.{key}" for key in _RATES if getattr(trace, key) is not None]
    if models.rate_per_s is not None and rates:
        raise UserError(
            f"models.rate_per_s and {' and '.join(rates)} both set the arrival rate: write only one of them"
        )


def fill_prefix_caching_default(tree: dict[str, Any], written: Collection[str]) -> None:
    """Turn prefix caching off for models whose layers keep states, unless the user wrote it.

    vLLM does so by default (``ModelConfig.is_prefix_caching_supported`` in vllm/config/model.py, 0.19.0).
    """
    engine = tree["engine"]
    if engine["prefix_caching"] and "engine.prefix_caching" not in written:
        engine["prefix_caching"] = state_model_of(tree["model"]["name"], tree["models"]["shapes"]) is None


def state_model_of(model: str, shapes: str | None) -> str | None:
    """Return the first of a run's models with layers that keep a state instead of KV; None: there is none.

    A model that cannot be read counts as one without: it is refused elsewhere.
    """
    for name, _ in shapes_of(shapes, model, 1):
        try:
            if not is_stack(name) and load_llm(name).keeps_states:
                return name
        except HardwareError:
            continue
    return None
