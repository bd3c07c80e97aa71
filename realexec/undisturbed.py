"""What one undisturbed worker computes after the same tokens: the reference outside float32.

In bfloat16 neither transformers' kernels nor products of other numbers of rows round as a worker's own do: a
chunk of a prompt differs now and then in the last bit of 8 from the whole prompt (0.02 standard deviations of
the logits were seen), and where two logits are that close another token comes out.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from realexec.decoder_layer import pad_rows
from realexec.model_runner import DUMMY_TOKEN, DecodeRow, ModelRunner

# In standard deviations of the logits: by how much the logit of a token may lie below the highest.
CLOSE: Final = 0.05


class UndisturbedWorker:
    """A worker with a request of its own and dummies beside it, as many rows as in the run."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    def judge(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[tuple[int, ...], frozenset[int]]:
        """The best token after ``prompt`` and those of ``tokens`` before it, at each place; and the places
        whose token is another one, with a logit at most `CLOSE` below the highest."""
        best, close = list[int](), set[int]()
        for place, rows in enumerate(self._logits(prompt, tokens)):
            # Of all rows, as workers take it: which of equal logits is the highest may depend on that.
            token, highest = tokens[place], int(rows.argmax(dim=-1)[0])
            logits = rows[0].float()
            best.append(highest)
            if token != highest and float(logits[highest] - logits[token]) <= CLOSE * float(logits.std()):
                close.add(place)
        return tuple(best), frozenset(close)

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
