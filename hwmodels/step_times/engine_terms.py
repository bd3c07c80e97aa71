"""What engines add to their steps and around them, by version: engine_terms.yaml of the catalogue."""

from collections.abc import Mapping
from typing import Any, Final

from hwmodels.catalogue import read_yaml
from hwmodels.catalogue.by_version import entries_up_to
from hwmodels.errors import HardwareError
from hwmodels.step_times.linear_step import LinearStepModel, TiledStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.step_error import LeastErrors, StepError, StepErrors, off_by
from hwmodels.step_times.step_time import StepModel

ENGINE_TERMS_FILE: Final = "engine_terms.yaml"
SECTIONS: Final = ("overhead", "front_end")


def engine_terms(engine: str, version: str) -> dict[str, dict[str, Any]]:
    """The keys of ``engine.overhead`` and ``engine.front_end`` of an engine at a version, as plain values.

    They are those of the newest entry that is not newer than ``version``, or of the oldest entry. Raises
    HardwareError with the engines that have entries.
    """
    entry = _entry(engine, version)
    return {section: dict(entry[section]) for section in SECTIONS}


def has_engine_terms(engine: str) -> bool:
    """Whether the catalogue has entries for this engine."""
    return engine in read_yaml(ENGINE_TERMS_FILE)


def errors_in_runs(operations: StepModel, gpu: str, engine: str, version: str) -> StepErrors | None:
    """The error of steps with the engine's fitted overhead, where whole measured runs judge it.

    Steps with decodes are as far off as the tables' own decode steps on held-out lines, but no less than
    the runs show with as many sequences (``steps`` of the entry): that prompts beside them are added, and
    products composed, was right there. Mixed steps that were measured keep their own error. None for GPUs
    without such runs (on RTX cards mixed steps cost more than their parts), for other rungs than tables of
    operations and lines fitted to them, for labelled all-reduces, and for mixtures of experts.
    """
    steps = _entry(engine, version)["steps"]
    judged = isinstance(operations, (OpTableStepModel, LinearStepModel, TiledStepModel))
    if not judged or operations.labels or gpu not in steps["gpus"]:
        return None
    own, source = operations.errors, steps["source"]
    anchors = tuple((int(n), off_by(share, "measured runs", source)) for n, share in steps["least"])
    told = ", ".join(f"{100 * share:g} % at {n}" for n, share in steps["least"])
    told = f"{own.decode.source}, by decoding sequences at least {told} as in {source}"
    alone = StepError(own.decode.low, own.decode.high, "measured runs", told)
    mixed = own.mixed if operations.interplay is not None else alone
    widest = max((error for _, error in anchors), key=lambda error: error.high)
    decode, mixed_most = (
        StepError(min(one.low, widest.low), max(one.high, widest.high), one.how, one.source)
        for one in (alone, mixed)
    )
    return StepErrors(own.prefill, decode, mixed_most, LeastErrors(anchors, alone, mixed))


def _entry(engine: str, version: str) -> Mapping[str, Any]:
    entries = read_yaml(ENGINE_TERMS_FILE).get(engine)
    if entries is None:
        known = ", ".join(sorted(read_yaml(ENGINE_TERMS_FILE)))
        raise HardwareError(f"{ENGINE_TERMS_FILE} has no {engine}: write engine.software as one of {known}")
    found: Mapping[str, Any] = (entries_up_to(entries, version) or entries[:1])[-1]
    return found
