"""Are a run's tokens those of one undisturbed worker? The reference is `generate` of transformers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from realexec.report import Generation


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """``tokens_checked`` must all be equal; tokens after a recompute are counted apart and may differ.

    ``first_difference`` is a sentence about the first unequal token that should have been equal, or None.
    """

    tokens_checked: int
    tokens_different: int
    tokens_recomputed: int
    recomputed_different: int
    first_difference: str | None


def check_tokens(
    model: Mapping[str, Any], seed: int, batch_size: int, generations: Iterable[Generation]
) -> TokenCheck:
    """Compare every generation with greedy `generate` over ``batch_size`` copies of its prompt, one thread.

    ``model``, ``seed`` and ``batch_size`` are the run's. Tokens are compared up to the first unequal one of a
    request: those after it follow from it, and all count as different.
    """
    from realexec.memory.device import CPU, here_or_cpu
    from realexec.models import build_model

    device = here_or_cpu(str(model.get("device", CPU)))
    reference = build_model({**model, "device": device}, seed)
    checked = different = recomputed = recomputed_different = 0
    first: str | None = None
    for generation in generations:
        expected = reference_tokens(reference, generation.prompt, len(generation.tokens), batch_size)
        equal = _equal_prefix(generation.tokens, expected)
        exact = generation.exact_tokens
        checked += exact
        different += max(exact - equal, 0)
        recomputed += len(generation.tokens) - exact
        recomputed_different += len(generation.tokens) - max(exact, equal)
        if equal < exact and first is None:
            first = (
                f"token {equal} of request {generation.request} is {generation.tokens[equal]}, "
                f"but an undisturbed worker generates {expected[equal]}"
            )
    return TokenCheck(checked, different, recomputed, recomputed_different, first)


def together(checks: Sequence[TokenCheck]) -> TokenCheck:
    """Of several models."""
    return TokenCheck(
        sum(one.tokens_checked for one in checks),
        sum(one.tokens_different for one in checks),
        sum(one.tokens_recomputed for one in checks),
        sum(one.recomputed_different for one in checks),
        next((one.first_difference for one in checks if one.first_difference is not None), None),
    )


def reference_tokens(
    reference: Any, prompt: tuple[int, ...], new_tokens: int, batch_size: int
) -> tuple[int, ...]:
    """The ``new_tokens`` greedy token ids after ``prompt``, from a batch of ``batch_size`` equal rows."""
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


def _equal_prefix(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their:
            return index
    return len(ours)
