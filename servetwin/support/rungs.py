"""The rungs of the step-time ladder for one (GPU, model, tp): available, chosen, and some times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.importers.published import AICONFIGURATOR, ALL_REDUCE, published_for
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.step_profile import StepProfile
from hwmodels.step_times.all_reduce_catalogue import Imitated
from hwmodels.step_times.select import StepModelKind, asks_library, step_model
from hwmodels.step_times.step_time import StepModel, pieces_s

LIBRARY: Final = "aiconfigurator"
# Asking it takes seconds for each combination.
NOT_ASKED: Final = "auto asks no library here, engine.step_time=aiconfigurator does"


@dataclass(frozen=True, slots=True)
class Rung:
    """One kind of step model. If it is not available, ``model`` is None and ``refusal`` has the reason."""

    kind: str
    model: StepModel | None
    refusal: str = ""

    def remedy(self, gpu: str, llm: LlmShape, tp: int) -> str:
        """Return what to measure or to write to get this rung; a sentence part."""
        words = f"gpu={gpu} model={llm.name} tp={tp}"
        if self.kind == "op_table":
            return f"no profile is given; {_tables(gpu, llm, tp, words)}"
        if self.kind == "linear":
            return (
                f"hwmodels/catalogue/linear.yaml has no coefficients for {words}; 'servetwin profile fit "
                "path=FILE' prints those of a profile"
            )
        return self.refusal


def _tables(gpu: str, llm: LlmShape, tp: int, words: str) -> str:
    """Return where measured operations are published, or that they must be measured."""
    published = published_for(gpu, llm, tp)
    if published is None:
        return (
            f"measure the layers of {llm.name} on {gpu} at tp={tp} with the engine's own kernels, write "
            f"'servetwin profile import format=FORMAT path=FOLDER {words} out=FILE', and profile=FILE here"
        )
    version = published.engine_version
    folders, beside = f"its folder {published.folder}", ""
    if published.beside and (tp > 1 or published.beside_for != ALL_REDUCE):
        folders += f" and, for {published.beside_for}, the folder {published.beside} of {AICONFIGURATOR}"
        beside = " aiconfigurator=SECOND"
    return (
        f"{published.source} has tables, measured with vLLM {version}: fetch {folders}, write 'servetwin "
        f"profile import format={published.format_name} path=FOLDER{beside} {words} out=FILE', profile=FILE "
        f"here, and in a run engine.profile=FILE engine.version={version}"
    )


def ladder(profile: Profile | StepProfile | None = None) -> tuple[str, ...]:
    """Return kinds of step models, best first; whole steps, never published, only with a profile of them."""
    left_out = {"auto"} if isinstance(profile, StepProfile) else {"auto", "whole_step"}
    return tuple(kind for kind in get_args(StepModelKind) if kind not in left_out)


def rungs_of(
    gpu: Gpu,
    llm: LlmShape,
    tp: int,
    profile: Profile | StepProfile | None,
    imitated: Imitated | None = None,
) -> list[Rung]:
    """Return every rung of the ladder, best first."""
    rungs = []
    for kind in ladder(profile):
        if kind == LIBRARY and (profile is not None or not asks_library(gpu, llm, Parallelism(tp))):
            rungs.append(Rung(kind, None, NOT_ASKED))
            continue
        try:
            rungs.append(Rung(kind, step_model(kind, gpu, llm, tp=tp, profile=profile, imitated=imitated)))
        except HardwareError as error:
            rungs.append(Rung(kind, None, str(error)))
    return rungs


def chosen_rung(
    *,
    rungs: Sequence[Rung],
    gpu: Gpu,
    llm: LlmShape,
    tp: int,
    profile: Profile | StepProfile | None,
    imitated: Imitated | None = None,
) -> Rung:
    """Return the rung that ``engine.step_time=auto`` chooses. Raises HardwareError if there is none."""
    source = step_model("auto", gpu, llm, tp=tp, profile=profile, imitated=imitated).source
    return next(rung for rung in rungs if rung.model is not None and rung.model.source == source)


def prefill_s(step: StepModel, tokens: int) -> float | None:
    """Return seconds of a step with one whole prompt of ``tokens``; None outside the valid range."""
    limits = step.limits
    if tokens > min(limits.max_prefill_tokens, limits.prompt_tokens):
        return None
    return step.dense_s(tokens, 1, 0) + step.prefill_attention_s(tokens, 0)


def decode_s(step: StepModel, sequences: int, context_tokens: int) -> float | None:
    """Return seconds of a step that decodes ``context_tokens`` in all; None outside the valid range."""
    limits = step.limits
    if sequences > limits.max_decode_sequences or context_tokens > limits.max_context_tokens:
        return None
    seconds = pieces_s(step.decode_attention(sequences), context_tokens)
    return None if seconds is None else step.dense_s(0, 0, sequences) + seconds
