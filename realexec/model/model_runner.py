"""Executes a model layer by layer: prefill chunks one request at a time, decoding in batches of a fixed size.

The bits of a matrix product depend on its number of rows, since BLAS libraries choose other kernels for very
few rows. Two rules keep a request's numbers independent of what else runs, and equal to an undisturbed
`generate` of ``batch_size`` copies of the prompt: decode batches always have ``batch_size`` rows, and short
chunks are padded with dummy rows (`padded_rows`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from realexec.memory.tensor_memory import HeapMemory, Memory, Region
from realexec.model.batched_attention import BatchedAttention
from realexec.model.chunk_cuts import SMALL_PRODUCT_ROWS
from realexec.model.decoder_layer import (
    Rotation,
    attend_chunk,
    attended_positions,
    finish,
    pad_rows,
    project,
)
from realexec.model.kv import KvShape, RequestKV
from realexec.model.layer_layout import EMBEDDING
from realexec.model.models import model_spec
from realexec.model.weights import Weights
from serving.vocabulary.layers import LayerRange

# The token of dummy rows; no result of these rows is read.
DUMMY_TOKEN: Final = 0


def padded_rows(tokens: int, known_tokens: int, batch_size: int) -> int:
    """Return the rows of a chunk of ``tokens``, with which its products use the reference's kernels.

    The reference computes ``batch_size * known_tokens`` rows at once. Other kernels run only for small
    products and for the last of an odd number of rows; of several prompt copies, the first has neither.
    """
    if batch_size == 1:
        return max(tokens, min(known_tokens, SMALL_PRODUCT_ROWS))
    if batch_size * known_tokens < SMALL_PRODUCT_ROWS:
        return batch_size * known_tokens
    return -(-tokens // SMALL_PRODUCT_ROWS) * SMALL_PRODUCT_ROWS


class DecodeRow(NamedTuple):
    """One live row of a decode batch: the newest token, its position, and the KV it attends to."""

    token: int
    position: int
    kv: RequestKV


class ModelRunner:
    """Layers [first, last) of one model on one thread; a request's whole state is its RequestKV.

    Layers run once their `weights` are whole: a worker that is still loading can run the first ones.
    ``memory`` holds the weights (in ``region``, if given), ``state_memory`` the KV (None: on the heap).
    Unless ``filled``, no unit is whole at first.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        seed: int,
        batch_size: int,
        *,
        layers: LayerRange | None = None,
        memory: Memory | None = None,
        filled: bool = True,
        state_memory: Memory | None = None,
        region: Region | None = None,
    ) -> None:
        # The thread count changes the order of additions, so every worker and the reference use one.
        torch.set_num_threads(1)
        self.spec = model_spec(model)
        self.batch_size = batch_size
        self.memory: Memory = HeapMemory(self.spec.device) if memory is None else memory
        self.state_memory: Memory = HeapMemory(self.spec.device) if state_memory is None else state_memory
        self.layers = LayerRange(0, self.spec.layers) if layers is None else layers
        self.source = self.spec.source(seed)
        self.weights = Weights(self.spec.layout(self.layers), self.memory, self.spec.dtype, region)
        self._model = self.spec.skeleton()
        self._layers = self._model.model.layers
        heads, head_dim = self.spec.config.num_key_value_heads, self._layers[0].self_attn.head_dim
        self.kv_shape = KvShape(self.layers, heads, head_dim, self.spec.dtype)
        self.attention = BatchedAttention(
            self.kv_shape, self.spec.config.num_attention_heads, batch_size, self.spec.device
        )
        for unit in self.weights.layout.units:
            _assign(self._model, self.weights.tensors(unit))
            if filled:
                self.weights.fill(unit, self.source)

    def new_kv(self, tokens: int) -> RequestKV:
        """Allocate the KV of ``tokens`` positions in every layer of this runner."""
        return RequestKV(self.kv_shape, tokens, self.state_memory)

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int], start: int, known_tokens: int, kv: RequestKV) -> torch.Tensor:
        """Compute positions [start, start + len(tokens)) of one request of ``known_tokens`` tokens.

        Returns the final hidden state [1, hidden size] of the last of these positions.
        """
        rows = padded_rows(len(tokens), known_tokens, self.batch_size)
        hidden = self.embed([*tokens, *[DUMMY_TOKEN] * (rows - len(tokens))])
        hidden = self.prefill_layers(
            hidden, start=start, tokens=len(tokens), known_tokens=known_tokens, kv=kv, layers=self.layers
        )
        return hidden[len(tokens) - 1 : len(tokens)]

    @torch.inference_mode()
    def sample(self, hidden: torch.Tensor) -> int:
        """The greedy token after one final hidden state [1, hidden size]."""
        return self.greedy(pad_rows(hidden, self.batch_size))[0]

    @torch.inference_mode()
    def decode(self, batch: Sequence[DecodeRow]) -> list[int]:
        """One decode step; returns the next token of each row. At most ``batch_size`` rows, at least one."""
        dummies = self.require_rows(len(batch)) - len(batch)
        hidden = self.embed([*(row.token for row in batch), *[DUMMY_TOKEN] * dummies])
        hidden = self.decode_layers(hidden, batch, self.layers)
        return self.greedy(hidden)[: len(batch)]

    def require_rows(self, requests: int) -> int:
        """Return the rows of every decode batch; ValueError if more requests are to decode at once."""
        if requests > self.batch_size:
            raise ValueError(f"{requests} requests decode at once, but a batch has {self.batch_size} rows")
        return self.batch_size

    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """Token ids to hidden states [rows, hidden size]."""
        self._require(EMBEDDING)
        ids = torch.tensor(tokens, device=self.spec.device)
        hidden: torch.Tensor = self._model.model.embed_tokens(ids)
        return hidden

    def prefill_layers(
        self,
        hidden: torch.Tensor,
        *,
        start: int,
        tokens: int,
        known_tokens: int,
        kv: RequestKV,
        layers: LayerRange,
    ) -> torch.Tensor:
        """Run ``layers`` over the rows of one chunk, of which the first ``tokens`` are real."""
        self._require(*range(layers.first + 1, layers.last + 1))
        rotation = self._rotation(hidden, range(start, start + hidden.shape[0]))
        positions = attended_positions(start + tokens, known_tokens)
        for index in range(layers.first, layers.last):
            layer = self._layers[index]
            queries, keys, values = (part[:, :, :tokens] for part in project(layer, hidden, rotation))
            kv.write(index, start, keys, values)
            attended = attend_chunk(layer, queries, *kv.read(index, positions), start)
            hidden = finish(layer, hidden, attended)
        return hidden

    def decode_layers(
        self, hidden: torch.Tensor, batch: Sequence[DecodeRow], layers: LayerRange
    ) -> torch.Tensor:
        """Run ``layers`` over a decode batch; every live row attends to its own KV at its own length."""
        dummies = hidden.shape[0] - len(batch)
        self._require(*range(layers.first + 1, layers.last + 1))
        plan = self.attention.plan(batch)
        rotation = self._rotation(hidden, [*(row.position for row in batch), *[0] * dummies])
        for index in range(layers.first, layers.last):
            layer = self._layers[index]
            queries, keys, values = project(layer, hidden, rotation)
            # Per row, keys and values: one position of a request's KV.
            pairs = torch.cat((keys, values)).permute(2, 0, 1, 3)
            for pair, row in zip(pairs.unbind(), batch):
                row.kv.write_one(index, row.position, pair)
            attended = plan.attend(index, layer, batch=batch, queries=queries, pairs=pairs)
            hidden = finish(layer, hidden, attended)
        return hidden

    def greedy(self, hidden: torch.Tensor) -> list[int]:
        """The most likely next token of each row, from final hidden states [rows, hidden size]."""
        tokens: list[int] = self.logits(hidden).argmax(dim=-1).tolist()
        return tokens

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of each token as the next one, from final hidden states [rows, hidden size]."""
        self._require(*self.weights.layout.head_units())
        logits: torch.Tensor = self._model.lm_head(self._model.model.norm(hidden))
        return logits

    def _rotation(self, hidden: torch.Tensor, positions: Sequence[int]) -> Rotation:
        ids = torch.tensor([positions], device=hidden.device)
        rotation: Rotation = self._model.model.rotary_emb(hidden, position_ids=ids)
        return rotation

    def _require(self, *units: int) -> None:
        """ValueError unless all these units are whole here; tensors of other units hold arbitrary bytes."""
        if not self.weights.whole.issuperset(units):
            missing = sorted(set(units) - self.weights.whole)
            raise ValueError(f"units {missing} are not whole on this worker")


def _assign(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Make the tensors the model's parameters of the same names, without a copy."""
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        model.get_submodule(module).register_parameter(leaf, torch.nn.Parameter(tensor, requires_grad=False))
