"""Models, workloads and systems of QUART's experiments, in the words of ``servetwin simulate``.

Numbers are of its sections 3 and 8. What it does not tell is ours and said here: the rates, the window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from experiments.common.set_up import Case, SetUp, Words


@dataclass(frozen=True, slots=True)
class Model:
    """exec_s: one request alone (table 1). stages: as its authors cut it. gain: over Cocktail, per cent."""

    title: str
    name: str
    exec_s: float
    stages: int
    gain: float

    def rate_per_s(self, load: float) -> float:
        """Return the rate that would keep ``load`` replicas of every stage busy if stages were even."""
        return load * self.stages / self.exec_s


MODELS: Final = (
    Model("BERT-21B", "bert_21b", 0.137, 8, 16.2),
    Model("LLAMA-7B", "llama_7b_pass", 0.243, 7, 9.1),
    Model("Whisper-9B", "whisper_9b", 0.074, 3, 10.2),
    Model("OPT-66B", "opt_66b_pass", 0.278, 8, 61.2),
    Model("WideResnet", "wide_resnet", 0.646, 8, 41.0),
)
QUART: Final = "quart"
BASELINES: Final = ("infless", "inferline", "cocktail")
SYSTEMS: Final = (*BASELINES, QUART)
CVS: Final = (0.1, 1.0, 2.0, 4.0, 8.0)
MAF_LOAD: Final = 2.0
MAF_TIMES: Final = 6
"""A MAF run has this many times the requests of other runs, as its rate changes from minute to minute."""
GAMMA_LOAD: Final = 3.0
"""The number of replicas of every stage that the mean rate keeps busy; the paper: "a large QPS"."""
ONCE: Final = ("uncertainty=off",)
WHOLE: Final[Words] = ("pipeline.stages=1", "pipeline.cut=bytes")
LENIENT: Final = 3.0
"""Times the execution time: the SLO of Figures 7 and 8, which systems are given and goodput is counted by.
Section 8.3: "we imposed a lenient SLO constraint. This configuration indicates that longer queueing times are
permissible at each pipeline stage". The paper has no number; its SLOs are 1 to 3 times (section 8.2)."""
_TOO_LARGE: Final = "opt_66b_pass"  # for one GPU: INFless has it as one unit of all its stages
# By section 2.2 the 43 GB of BERT-21B fit in an A40.
ROOM: Final = "engine.gpu_memory_utilization=0.95"
MAF_STAND_IN: Final = "trace=maf_like with minutes of their own for the Azure Functions trace"
APPROXIMATED: Final = "baselines are approximations"


def maf(model: Model, requests: int) -> SetUp:
    """A model under the Azure Functions stand-in, from the morning rise on."""
    trace = (
        "trace=maf_like",
        "trace.minute_cv=1.5",
        "trace.start_s=28800",
        f"trace.rate_per_s={model.rate_per_s(MAF_LOAD):.6g}",
        f"trace.requests={MAF_TIMES * requests}",
    )
    stand_in = f"{MAF_STAND_IN}; {APPROXIMATED}"
    return SetUp(f"{model.title}, MAF", _words(model), trace, rate="written", stand_in=stand_in)


def gamma(model: Model, cv: float, requests: int) -> SetUp:
    """A model under Gamma arrivals of this CV, with the lenient SLO."""
    trace = (
        "trace=gamma",
        f"trace.gap_cv={cv:g}",
        f"trace.rate_per_s={model.rate_per_s(GAMMA_LOAD):.6g}",
        f"trace.requests={requests}",
    )
    words = (*_words(model), f"slo.ttft_ms={LENIENT * model.exec_s * 1e3:g}")
    return SetUp(f"{model.title}, CV {cv:g}", words, trace, rate="written", stand_in=APPROXIMATED)


def system(name: str, set_up: SetUp) -> Case:
    """One of the four, from one replica of every stage on; a model in one piece for INFless if it fits."""
    whole = name == "infless" and f"model={_TOO_LARGE}" not in set_up.words
    return Case(name, set_up, (f"system={name}", *(WHOLE if whole else ())))


@dataclass(frozen=True, slots=True)
class Reading:
    """Another reading of what the paper leaves open. source: what supports it. words: added for a system.

    in_stages: whether INFless has the model as one unit of all its stages, not in one piece.
    """

    title: str
    source: str
    words: Mapping[str, Words]
    in_stages: bool = False


_LEAST_COST: Final[dict[str, Words]] = {
    "infless": ("system.stages.sizing=slo",),
    "inferline": ("system.stages.sizing=slo",),
}
_COPIES_FIRST: Final[dict[str, Words]] = {"quart": ("system.stages.copies_first=true",)}
READINGS: Final = (
    Reading(
        "infless_unit",
        "INFless scales all stages as one unit. Section 3.3: systems scale the entire model uniformly, all "
        "stages in proportion; section 8.1: all models are divided into eight stages. (Default: INFless has "
        "the model in one piece. Section 8.4: it does not use a pipeline.)",
        {},
        in_stages=True,
    ),
    Reading(
        "least_cost",
        "INFless and InferLine start the fewest replicas that keep the SLO by Erlang C. Both papers minimise "
        "cost under an SLO. (Default: replicas are busy 80 and 70 % at most.)",
        _LEAST_COST,
    ),
    Reading("infless_unit, least_cost", "both of the above", _LEAST_COST, in_stages=True),
    Reading(
        "planned_mean",
        "InferLine plans for the run's mean rate before the first request. Its own paper has a planner that "
        "is given a sample of the arrivals. (Default: the rate of the first second. Section 1 counts it to "
        "online scaling; section 8.3: the initial replicas of all scaling are 1.)",
        {"inferline": ("system.stages.planned_per_s=null",)},
    ),
    Reading(
        "copies_first",
        "QUART puts a replica on a shared GPU beside a copy before an idle GPU without one. Figure 5: key "
        "stages are prioritized to be scheduled on servers with available cache parameters. (Default: idle "
        "GPUs first. Section 6.2: copies go to new GPUs; multiplexed GPUs interfere.)",
        _COPIES_FIRST,
    ),
    Reading(
        "copies_first, infless_unit, least_cost",
        "the three above",
        _LEAST_COST | _COPIES_FIRST,
        in_stages=True,
    ),
)


def system_read_as(reading: Reading, name: str, set_up: SetUp) -> Case:
    """One of the four by another reading; the case of ``system`` if the reading does not change it."""
    usual = system(name, set_up)
    words = usual.words
    if reading.in_stages and name == "infless":
        words = tuple([word for word in words if word not in WHOLE])
    words = (*words, *reading.words.get(name, ()))
    return usual if words == usual.words else Case(f"{name}, {reading.title}", set_up, words)


def five_stages(cv: float, load: float, times_cv: float, requests: int, more: Words = ()) -> Case:
    """BERT-21B in five stages on five GPUs, which stay as they are (section 3).

    ``load``: the share of time that the slowest stage is busy.
    """
    words = ("cluster=quart", "model=bert_21b", "pipeline.stages=5", "pipeline.cut=bytes", *ONCE)
    drawn = ("trace=gamma", f"trace.gap_cv={cv:g}", f"trace.requests={requests}")
    trace: Words = (*drawn, f"trace.utilization={load:g}")
    name = f"BERT-21B in 5 stages, CV {cv:g}, load {load:g}, times CV {times_cv:g}"
    set_up = SetUp(name, words, trace, rate="written")
    label = " ".join(("pipeline", *[word.partition(".")[2] for word in more]))
    return Case(label, set_up, ("system=pipeline", f"pipeline.times_cv={times_cv:g}", *more))


def _words(model: Model) -> Words:
    return ("cluster=quart", f"model={model.name}", ROOM, *ONCE)
