"""Computes what a worker that runs one request at a time generates: the reference outside float32.

In bfloat16, transformers' kernels and products with other numbers of rows round differently from a worker's
own. A chunk of a prompt sometimes differs from the whole prompt in the last of 8 bits (0.02 standard
deviations of the logits were seen). If two logits are that close, another token comes out.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from realexec.model.decoder_layer import pad_rows
from realexec.model.model_runner import DUMMY_TOKEN, DecodeRow, ModelRunner

# How many standard deviations of the logits a token's logit may lie below the highest, per square root of a
# layer: rounding adds up over layers as independent errors do. Logits of a model of 30 layers in bfloat16
# differ from those in float32 by 0.016 to 0.020 (100 to 600 tokens, random parameters); two computations of
# two tokens differ by twice that, and three times that is allowed.
CLOSE_PER_ROOT_LAYER: Final = 0.022


class ReferenceWorker:
    """A worker that runs one request at a time, with dummy rows beside it, as many rows as in the run."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.tolerance: float = CLOSE_PER_ROOT_LAYER * math.sqrt(runner.spec.layers)

    def judge(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[tuple[int, ...], dict[int, float]]:
        """Return the best token at each place, after ``prompt`` and the tokens before it. Also return, for
        places where ``tokens`` differs, how far its logit is below the highest, in standard deviations."""
        best, below = list[int](), dict[int, float]()
        for place, rows in enumerate(self._logits(prompt, tokens)):
            # The argmax over all rows, as in workers: the choice among equal logits may depend on that.
            token, highest = tokens[place], int(rows.argmax(dim=-1)[0])
            logits = rows[0].float()
            best.append(highest)
            if token != highest:
                below[place] = float(logits[highest] - logits[token]) / float(logits.std())
        return tuple(best), below

    @torch.inference_mode()
    def _logits(self, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[torch.Tensor]:
        """Yield [rows, vocabulary] for every place of ``tokens``, in row 0; the prompt is computed whole."""
        runner, known = self._runner, len(prompt)
        kv = runner.new_kv(known + len(tokens))
        dummies = [DUMMY_TOKEN] * (runner.batch_size - 1)
        hidden = pad_rows(runner.prefill(prompt, 0, known, kv), runner.batch_size)
        for place, token in enumerate(tokens):
            yield runner.logits(hidden)
            if place + 1 < len(tokens):
                rows = [DecodeRow(token, known + place, kv)]
                hidden = runner.decode_layers(runner.embed([token, *dummies]), rows, runner.layers)
        kv.close()
