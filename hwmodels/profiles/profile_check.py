"""Checks whether a profile fits a run: it may be foreign (GPU, model or tp) or stale (another engine)."""

from dataclasses import replace
from typing import Final, TypeVar

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Stamp
from hwmodels.profiles.profile_file import LoadedProfile
from hwmodels.profiles.step_profile import LoadedSteps

Loaded = TypeVar("Loaded", LoadedProfile, LoadedSteps)
# The engine preset that imitates a software; of several the one with the newest scheduler.
_PRESETS: Final = {"vllm": "vllm_v1"}
# Datasheets give one rate for both 16-bit formats, and both use two bytes per number.
_SAME_WIDTH: Final = {"bf16": "16-bit", "bfloat16": "16-bit", "fp16": "16-bit", "float16": "16-bit"}


def profile_problems(
    stamp: Stamp, *, gpu: str, llm: str, tp: int, engine: str, engine_version: str | None, precision: str
) -> tuple[str, ...]:
    """One clause for each difference between a profile and the run; empty if it fits.

    ``gpu`` and ``llm`` are catalogue names; models of the same shape count as the same. ``engine_version``
    None: the run does not declare one, so it is not compared.
    """
    problems = []
    if stamp.gpu != gpu:
        problems.append(f"it was measured on {stamp.gpu}, and the run has {gpu}")
    if not same_shape(stamp.llm, llm):
        problems.append(f"it was measured for {stamp.llm}, and the run serves {llm}")
    if stamp.tp != tp:
        problems.append(f"it was measured at tp={stamp.tp}, and the run has tp={tp}")
    if stamp.engine != engine:
        problems.append(f"it was measured with {stamp.engine}, and the run imitates {engine}")
    elif engine_version is not None and _version(stamp.engine_version) != _version(engine_version):
        problems.append(
            f"it is stale: measured with {engine} {stamp.engine_version}, and the run imitates "
            f"{engine} {engine_version}"
        )
    if _width(stamp.precision) != _width(precision):
        problems.append(f"it is stale: measured in {stamp.precision}, and the run computes in {precision}")
    return tuple(problems)


def require_profile(
    loaded: Loaded,
    *,
    path: str,
    gpu: str,
    llm: str,
    tp: int,
    engine: str,
    engine_version: str | None,
    precision: str,
    force: bool = False,
    kept: str = "",
) -> Loaded:
    """``loaded`` if it fits the run; else HardwareError with all problems, or with ``force`` noted in it.

    ``kept``: settings to write beside another engine, so that it still fits the rest of the run.
    """
    misfits = profile_problems(
        loaded.profile.stamp,
        gpu=gpu,
        llm=llm,
        tp=tp,
        engine=engine,
        engine_version=engine_version,
        precision=precision,
    )
    problems = loaded.problems + misfits
    if problems and not force:
        words = keys_that_fit(
            loaded.profile.stamp,
            gpu=gpu,
            llm=llm,
            tp=tp,
            engine=engine,
            engine_version=engine_version,
            kept=kept,
        )
        remedy = f"write {words}, name" if words else "name"
        raise HardwareError(
            f"the profile {path} does not fit this run: {'; '.join(problems)}; {remedy} a profile that fits, "
            "or write engine.profile_force=true to use it anyway"
        )
    return replace(loaded, problems=problems)


def keys_that_fit(
    stamp: Stamp, *, gpu: str, llm: str, tp: int, engine: str, engine_version: str | None, kept: str = ""
) -> str:
    """The settings with which a run fits the profile, as far as they differ from this run's."""
    words = []
    if stamp.gpu != gpu:
        words.append(f"cluster={stamp.gpu}_xN")
    if not same_shape(stamp.llm, llm):
        words.append(f"model={stamp.llm}")
    if stamp.tp != tp:
        words.append(f"model.tp={stamp.tp}")
    if stamp.engine != engine and stamp.engine in _PRESETS:
        words += [f"engine={_PRESETS[stamp.engine]}", *kept.split()]
    stale = engine_version is not None and _version(stamp.engine_version) != _version(engine_version)
    if (stale or stamp.engine != engine) and stamp.engine in _PRESETS:
        words.append(f"engine.version={_version(stamp.engine_version)}")
    return " ".join(words)


def same_shape(model: str, other: str) -> bool:
    """Whether two catalogue models do the same work: equal except name, source and context length."""
    if model == other:
        return True
    try:
        return load_llm(model).computes_like(load_llm(other))
    except HardwareError:  # the catalogue does not know one of them, so equality cannot be shown
        return False


def _version(text: str) -> str:
    return text.strip().removeprefix("v")


def _width(precision: str) -> str:
    return _SAME_WIDTH.get(precision.lower(), precision.lower())
