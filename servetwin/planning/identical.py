"""Tells whether all requests of a plan's workload are identical, and what to write to have them spread."""

from servetwin.planning.layout import Layout
from servetwin.planning.probe import prepared_for


def same_lengths(layout: Layout, gpus: int, words: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the tokens of every prompt and of every answer; None if requests differ. At a size that runs."""
    workload = prepared_for((*words, *layout.words_of(gpus))).workload
    prompt, output = workload.prompt_tokens, workload.output_tokens
    if len(prompt) < 2 or (prompt != prompt[0]).any() or (output != output[0]).any():
        return None
    return int(prompt[0]), int(output[0])


def identical_words(lengths: tuple[int, int] | None) -> list[str]:
    """Return the remark on such a workload: none if requests differ."""
    if lengths is None:
        return []
    prompt, output = lengths
    return [
        f"all prompts have {prompt:,} and all answers {output:,} tokens; real lengths vary and need more: "
        f"write trace.lengths=azure_conv:{prompt}x{output} for these means, spread like Azure's conversations"
    ]
