"""The controls of the page: what each is called, what it may be, and which words of a run it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import closest, echo
from servetwin.planning.layout import layout_of
from serving.vocabulary.errors import UserError

# Drawn traces: they need no file, and their rate is a control of its own.
TRACES: Final = (
    "azure_conv_like", "azure_code_like", "burstgpt_like", "poisson", "gamma", "on_off", "diurnal",
    "multi_turn",
)  # fmt: skip
STARTS: Final = ("cold", "warm", "hot", "pooled")
# From a host's memory or SSD, as a pod on a node that has the model does.
_FROM_HOSTS: Final = ("system/provision=host_or_ssd", "system/cache=ttl")
_OWN: Final = ""  # the system's own, the trace's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """``label``, ``hint``: for the page. ``choices``: of a list, empty for a field. ``numbers``: it is one.

    ``low`` and ``high`` bound a number. ``key``: the word of a run that it sets; "" where a function of
    several controls does.
    """

    name: str
    label: str
    value: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    key: str = ""

    def checked(self, text: str) -> str:
        """Return the value as a word's text. UserError for what it cannot be."""
        if self.choices:
            if text not in self.choices:
                near = closest(text, self.choices) or self.value
                raise UserError(f"{self.name}={echo(text)} is unknown: write {self.name}={near}")
            return text
        if self.low is None or self.high is None or (not text and not self.value):
            return text
        return self._number(text)

    def _number(self, text: str) -> str:
        assert self.low is not None and self.high is not None
        advice = f"write a number from {self.low:g} to {self.high:g}"
        try:
            value = float(text)
        except ValueError:
            raise UserError(f"{self.name}={echo(text)} is no number: {advice}") from None
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            kind = "a whole number" if self.whole else "a number"
            advice = f"write {kind} from {self.low:g} to {self.high:g}"
            raise UserError(f"{self.name}={echo(text)} is out of range: {advice}")
        return f"{value:g}"


def controls() -> tuple[Control, ...]:
    """Return the controls in the order of the page."""
    options = option_groups()
    models = tuple(sorted(name for name in options["model"] if name not in _NO_LANGUAGE_MODEL))
    hardware = (*CLUSTER_FAMILIES, *topology_names())
    return (
        Control(name="model", label="Model", value="llama3_8b", choices=models, key="model"),
        Control(
            name="gpu", label="GPU or cluster", value="h100", choices=hardware,
            hint="A cluster such as blitz_a has links: systems that load parameters need one.",
        ),
        Control(name="gpus", label="GPUs", value="8", low=1, high=512, whole=True),
        Control(
            name="tp", label="GPUs per replica", value="1", choices=("1", "2", "4", "8"),
            hint="Tensor parallel: model.tp.",
        ),
        Control(name="trace", label="Workload", value="azure_conv_like", choices=TRACES, key="trace"),
        Control(
            name="rate", label="Requests per second", value="20", low=0.01, high=10_000,
            key="trace.rate_per_s",
        ),
        Control(
            name="lengths", label="Lengths", value=_OWN, key="trace.lengths",
            hint="Prompt x output tokens, such as 1000x300; empty: the workload's own.",
        ),
        Control(
            name="requests", label="Requests", value="1000", low=1, high=20_000, whole=True,
            key="trace.requests",
        ),
        Control(
            name="system", label="System", value="vllm", choices=tuple(sorted(options["system"])),
            key="system",
        ),
        Control(
            name="scaler", label="Autoscaler", value=_OWN, choices=(_OWN, *sorted(options["system/scaler"])),
            key="system/scaler", hint="Empty: the system's own.",
        ),
        Control(
            name="start", label="Start of an instance", value=_OWN, choices=(_OWN, *STARTS),
            key="system.instances.start", hint="What a new instance finds; empty: the engine's own.",
        ),
        Control(
            name="ready", label="Seconds until it serves", value=_OWN, low=0, high=3600,
            key="system.instances.start_total_s", hint="A pod's whole start; empty: by the start above.",
        ),
        Control(
            name="ttft", label="Objective: TTFT, ms", value="450", low=1, high=600_000, key="slo.ttft_ms"
        ),
        Control(
            name="tpot", label="Objective: TPOT, ms", value="150", low=0.1, high=60_000, key="slo.tpot_ms"
        ),
        Control(
            name="price", label="Price of a GPU-hour", value=_OWN, low=0, high=10_000,
            hint="In your currency; for the cost alone.",
        ),
    )  # fmt: skip


# Stages of one pass, and models without tokens: they have systems and workloads of their own.
_NO_LANGUAGE_MODEL: Final = (
    "bert_21b", "llama_7b_pass", "opt_66b_pass", "whisper_9b", "wide_resnet", "llama_7b",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """A checked value for each control."""

    values: Mapping[str, str]

    def words(self) -> list[str]:
        """Return the words of ``servetwin simulate``. UserError for GPUs that do not fill the layout."""
        layout = layout_of(hardware=self.values["gpu"], tp=int(self.values["tp"]), pp=1, words=())
        gpus = int(self.values["gpus"])
        if gpus % layout.step or gpus < layout.least:
            low = max(layout.least, gpus // layout.step * layout.step)
            raise UserError(
                f"gpus={gpus} does not fill {self.values['gpu']} with {self.values['tp']} per replica: "
                f"write gpus={low} or gpus={low + layout.step}"
            )
        keyed = [
            f"{control.key}={self.values[control.name]}"
            for control in controls()
            if control.key and self.values[control.name] != _OWN
        ]
        return [*keyed, *self._loads(), *layout.words_of(gpus)]

    def _loads(self) -> list[str]:
        """Return where new instances load from, for a system that starts none by itself."""
        system, scaler = self.values["system"], self.values["scaler"]
        if scaler in (_OWN, "none"):
            return []
        starts_none = {"provision": "none"} in option_file("system", system).get("defaults", [])
        return list(_FROM_HOSTS) if starts_none else []

    @property
    def price(self) -> float | None:
        """Return the price of a GPU-hour, None if none was given."""
        return float(self.values["price"]) if self.values["price"] else None


def state_of(given: Mapping[str, str]) -> State:
    """Return the state with ``given`` in place of first values. UserError for unknown names and values."""
    every = {control.name: control for control in controls()}
    for name in given:
        if name not in every:
            near = closest(name, every)
            raise UserError(f"there is no control '{echo(name)}': write {near or ' | '.join(every)}")
    return State({name: one.checked(given.get(name, one.value).strip()) for name, one in every.items()})
