"""One pass of some requests over some layers; hidden states may come from and go to other workers."""

from collections.abc import Sequence

import torch

from realexec.model.decoder_layer import pad_rows
from realexec.model.held_request import HeldRequest
from realexec.model.model_runner import DecodeRow, ModelRunner, padded_rows
from serving.vocabulary.actions import Span
from serving.vocabulary.layers import LayerRange


def pass_over(
    runner: ModelRunner,
    chunks: Sequence[tuple[int, HeldRequest, Span]],
    decode: Sequence[tuple[int, HeldRequest]],
    layers: LayerRange,
) -> dict[int, int]:
    """Run ``layers`` over the rows that each request has (``hidden``); the output rows replace them.

    ``chunks``: (request, its state here, its positions). Returns the tokens sampled after the model's last
    layer: of chunks that end with the last known token, and of all of ``decode``.
    """
    sampled = {}
    for request, held, positions in chunks:
        _run_chunk(runner, held, positions, layers)
        if layers.last == runner.spec.layers:
            if positions[1] == len(held.tokens):
                sampled[request] = runner.sample(_rows_of(runner, held)[-1:])
            held.hidden = None
    for begin in range(0, len(decode), runner.batch_size):
        batch = decode[begin : begin + runner.batch_size]
        _run_decode(runner, [held for _, held in batch], layers)
        if layers.last == runner.spec.layers:
            sampled.update(_sampled(runner, batch))
    return sampled


def _sampled(runner: ModelRunner, batch: Sequence[tuple[int, HeldRequest]]) -> dict[int, int]:
    """The next token of each request of a decode batch that has run the last layer."""
    rows = torch.cat([_rows_of(runner, held) for _, held in batch])
    tokens = runner.greedy(pad_rows(rows, runner.batch_size))
    for _, held in batch:
        held.hidden = None
    return {request: token for (request, _), token in zip(batch, tokens)}


def _run_chunk(runner: ModelRunner, held: HeldRequest, positions: Span, layers: LayerRange) -> None:
    """Run a chunk and drop its dummy rows: no result that is read depends on them."""
    start, end = positions
    known = len(held.tokens)
    assert held.kv is not None
    hidden = pad_rows(_rows_of(runner, held), padded_rows(end - start, known, runner.batch_size))
    hidden = runner.prefill_layers(
        hidden, start=start, tokens=end - start, known_tokens=known, kv=held.kv, layers=layers
    )
    held.hidden, held.depth = hidden[: end - start].contiguous(), layers.last


def _run_decode(runner: ModelRunner, batch: Sequence[HeldRequest], layers: LayerRange) -> None:
    rows = []
    for held in batch:
        assert held.kv is not None
        rows.append(DecodeRow(held.tokens[-1], len(held.tokens) - 1, held.kv))
    hidden = pad_rows(torch.cat([_rows_of(runner, held) for held in batch]), runner.require_rows(len(batch)))
    hidden = runner.decode_layers(hidden, rows, layers)
    for index, held in enumerate(batch):
        held.hidden, held.depth = hidden[index : index + 1].clone(), layers.last


def _rows_of(runner: ModelRunner, held: HeldRequest) -> torch.Tensor:
    """The request's rows on this device; they may come from a worker with another device."""
    assert held.hidden is not None
    return held.hidden.to(runner.spec.device)
