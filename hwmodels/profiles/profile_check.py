"""Compares a profile with a run: both must have the same GPU, model, tp, engine and number format."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Stamp

if TYPE_CHECKING:
    from hwmodels.profiles.profile_file import LoadedProfile
    from hwmodels.profiles.step_profile import LoadedSteps

Loaded = TypeVar("Loaded", "LoadedProfile", "LoadedSteps")
# Serving software -> the engine preset that imitates it; if several do, the one with the newest scheduler.
_PRESETS: Final = {"vllm": "vllm_v1"}
# Number formats that take equally long: datasheets give one FLOP rate for BF16 and FP16, and a number has
# two bytes in both.
_SAME_WIDTH: Final = {"bf16": "16-bit", "bfloat16": "16-bit", "fp16": "16-bit", "float16": "16-bit"}


OTHER_VERSION: Final = "it is stale: measured with"
"""The beginning of the problem that a profile is of another version of the run's engine."""


def profile_problems(
    stamp: Stamp, *, gpu: str, llm: str, tp: int, engine: str, engine_version: str | None, precision: str
) -> tuple[str, ...]:
    """One clause for each difference between a profile and a run; empty if the profile fits the run.

    The keyword arguments describe the run. gpu, llm: catalogue names; two models of the same shape count as
    equal. engine_version: if None, the run declares no version, and versions are not compared.
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
    elif engine_version is not None and _without_v(stamp.engine_version) != _without_v(engine_version):
        problems.append(
            f"{OTHER_VERSION} {engine} {stamp.engine_version}, and the run imitates {engine} {engine_version}"
        )
    if _format_class(stamp.precision) != _format_class(precision):
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
    """The profile ``loaded``, with all its problems in ``problems``.

    Raises HardwareError if it has problems and ``force`` is false. kept: settings, separated by blanks, that
    the error proposes together with another engine preset because the rest of the run needs them.
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
    """Settings of cluster, model, tp and engine with which this run would match the profile.

    Only those that differ from the run's are given. kept: settings, separated by blanks, that are added if
    the engine preset is one of them.
    """
    words = []
    if stamp.gpu != gpu:
        words.append(f"cluster={stamp.gpu}_xN")
    if not same_shape(stamp.llm, llm):
        words.append(f"model={stamp.llm}")
    if stamp.tp != tp:
        words.append(f"model.tp={stamp.tp}")
    if stamp.engine != engine and stamp.engine in _PRESETS:
        words += [f"engine={_PRESETS[stamp.engine]}", *kept.split()]
    stale = engine_version is not None and _without_v(stamp.engine_version) != _without_v(engine_version)
    if (stale or stamp.engine != engine) and stamp.engine in _PRESETS:
        words.append(f"engine.version={_without_v(stamp.engine_version)}")
    return " ".join(words)


def same_shape(model: str, other: str) -> bool:
    """Whether two models of the catalogue are equal except in name, source and context length."""
    if model == other:
        return True
    try:
        return load_llm(model).computes_like(load_llm(other))
    except HardwareError:  # one of them is not in the catalogue, so their shapes cannot be compared
        return False


def _without_v(text: str) -> str:
    return text.strip().removeprefix("v")


def _format_class(precision: str) -> str:
    return _SAME_WIDTH.get(precision.lower(), precision.lower())
