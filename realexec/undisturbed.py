"""What one undisturbed worker computes after the same tokens: the reference outside float32.

In bfloat16 neither transformers' kernels nor products of other numbers of rows round as a worker's own do: a
chunk of a prompt differs now and then in the last bit of 8 from the whole prompt (0.02 standard deviations of
the logits were seen), and where two logits are that close another token comes out.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from realexec.decoder_layer import pad_rows
from realexec.model_runner import DUMMY_TOKEN, DecodeRow, ModelRunner

# By how many standard deviations of the logits that of a token may lie below the highest, for each square
# root of a layer: what layers round adds up as independent errors do. Logits of a model of 30 layers in
# bfloat16 differ from those in float32 by 0.016 to 0.020 (100 to 600 tokens, random parameters); two
# computations of two tokens differ by twice that, and three times that is allowed.
CLOSE_PER_ROOT_LAYER: Final = 0.022


class UndisturbedWorker:
    """A worker with a request of its own and dummies beside it, as many rows as in the run."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.tolerance: float = CLOSE_PER_ROOT_LAYER * math.sqrt(runner.spec.layers)

    def judge(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[tuple[int, ...], dict[int, float]]:
        """The best token after ``prompt`` and those of ``tokens`` before it, at each place; and at the places
        whose token is another one, how far its logit lies below the highest, in standard deviations."""
        best, below = list[int](), dict[int, float]()
        for place, rows in enumerate(self._logits(prompt, tokens)):
            # Of all rows, as workers take it: which of equal logits is the highest may depend on that.
            token, highest = tokens[place], int(rows.argmax(dim=-1)[0])
            logits = rows[0].float()
            best.append(highest)
            if token != highest:
                below[place] = float(logits[highest] - logits[token]) / float(logits.std())
        return tuple(best), below

    @torch.inference_mode()
    def _logits(self, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[torch.Tensor]:
        """[rows, vocabulary] of every place of ``tokens``, in the first row; the prompt is computed whole."""
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
