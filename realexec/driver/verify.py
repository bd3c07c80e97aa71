"""Check that a run's tokens are those of one undisturbed worker.

In float32 the reference is `generate` of transformers, and every token must be equal. In other dtypes it is a
worker of the same kind (`undisturbed`), and a token with an almost equally high logit is accepted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from realexec.world.report import Generation

GENERATE: Final = "generate"
UNDISTURBED: Final = "one undisturbed worker"

# Returns the reference's tokens after a prompt and the run's own tokens. If the reference reports it: for
# places where the run's token differs, how far its logit is below the highest, in standard deviations.
Judge = Callable[[Sequence[int], Sequence[int]], tuple[tuple[int, ...], Mapping[int, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    """``tokens_checked`` must all be equal; tokens after a recompute are counted separately and may differ.

    ``first_difference`` is a sentence about the first unequal token that should have been equal, or None.
    ``tokens_close``: checked tokens that differ from the reference's, but within its tolerance.
    """

    tokens_checked: int
    tokens_different: int
    tokens_recomputed: int
    recomputed_different: int
    first_difference: str | None
    tokens_close: int = 0


def reference_of(model: Mapping[str, Any]) -> str:
    """Name the reference that this model's tokens are compared with."""
    return GENERATE if str(model.get("dtype", "float32")) == "float32" else UNDISTURBED


def check_tokens(
    model: Mapping[str, Any], seed: int, batch_size: int, generations: Iterable[Generation]
) -> TokenCheck:
    """Compare every generation with the reference, which computes ``batch_size`` rows with one thread.

    ``model``, ``seed`` and ``batch_size`` are the run's. A request's tokens are compared up to its first
    unequal token: all later ones count as different, because they follow from it.
    """
    judge, tolerance = _judge(model, seed, batch_size)
    checked = different = recomputed = recomputed_different = close = 0
    first: str | None = None
    for generation in generations:
        expected, below = judge(generation.prompt, generation.tokens)
        as_good = frozenset(place for place, gap in below.items() if gap <= tolerance)
        equal = _equal_prefix(generation.tokens, expected, as_good)
        exact = generation.exact_tokens
        checked += exact
        different += max(exact - equal, 0)
        close += sum(place < min(exact, equal) for place in as_good)
        recomputed += len(generation.tokens) - exact
        recomputed_different += len(generation.tokens) - max(exact, equal)
        if equal < exact and first is None:
            first = (
                f"token {equal} of request {generation.request} is {generation.tokens[equal]}, "
                f"but an undisturbed worker generates {expected[equal]}{_told(below.get(equal), tolerance)}"
            )
    return TokenCheck(
        tokens_checked=checked,
        tokens_different=different,
        tokens_recomputed=recomputed,
        recomputed_different=recomputed_different,
        first_difference=first,
        tokens_close=close,
    )


def _told(below: float | None, tolerance: float) -> str:
    if below is None:
        return ""
    return f", whose logit is {below:.3f} standard deviations higher (up to {tolerance:.3f} is rounding)"


def together(checks: Sequence[TokenCheck]) -> TokenCheck:
    """Add up the checks of several models."""
    return TokenCheck(
        tokens_checked=sum(check.tokens_checked for check in checks),
        tokens_different=sum(check.tokens_different for check in checks),
        tokens_recomputed=sum(check.tokens_recomputed for check in checks),
        recomputed_different=sum(check.recomputed_different for check in checks),
        first_difference=next(
            (check.first_difference for check in checks if check.first_difference is not None), None
        ),
        tokens_close=sum(check.tokens_close for check in checks),
    )


def _judge(model: Mapping[str, Any], seed: int, batch_size: int) -> tuple[Judge, float]:
    """Return the reference, and its tolerance: how far below the highest a logit may lie."""
    from realexec.memory.device import CPU, here_or_cpu
    from realexec.model.model_runner import ModelRunner
    from realexec.model.models import build_model
    from realexec.model.reference_worker import ReferenceWorker

    here = {**model, "device": here_or_cpu(str(model.get("device", CPU)))}
    if reference_of(model) == UNDISTURBED:
        worker = ReferenceWorker(ModelRunner(here, seed, batch_size))
        return worker.judge, worker.tolerance
    reference = build_model(here, seed)

    def judge(prompt: Sequence[int], tokens: Sequence[int]) -> tuple[tuple[int, ...], Mapping[int, float]]:
        return reference_tokens(reference, tuple(prompt), len(tokens), batch_size), {}

    return judge, 0.0


def reference_tokens(
    reference: Any, prompt: tuple[int, ...], new_tokens: int, batch_size: int
) -> tuple[int, ...]:
    """Return the ``new_tokens`` greedy token ids after ``prompt``, from ``batch_size`` equal rows."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ids = torch.tensor([prompt] * batch_size, device=reference.device)
        output = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
    finally:
        torch.set_num_threads(threads)
    return tuple(output[0, len(prompt) :].tolist())


def _equal_prefix(ours: tuple[int, ...], theirs: tuple[int, ...], as_good: frozenset[int]) -> int:
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their and index not in as_good:
            return index
    return len(ours)
