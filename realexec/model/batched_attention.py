"""Attention of all rows of a decode batch by one call, with the bits that one call for each row gives.

A batch's rows have different numbers of keys, so their keys and values are laid side by side in one block of
a fixed width, and a mask hides the rest. Hidden keys add exact zeros. But torch's CPU kernel adds up a row's
last keys in another order than its other keys: whole vectors first, then four keys at a time, then the rest.
So a row's last keys have columns of their own at the block's end, where the kernel treats them as the last
ones (`last_columns`). On some processors it also adds up long rows in parts, whose size depends on the
block's width. `agreement` finds out on this machine up to which width the bits agree; wider rows, and all
rows outside fp32 on a CPU, keep a call of their own.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from realexec.memory.tensor_memory import HeapMemory
from realexec.model.chunk_cuts import KEY_BLOCK
from realexec.model.decoder_layer import attend
from realexec.model.kv import KvShape, RequestKV
from serving.vocabulary.layers import LayerRange

# Elements of a vector of the kernel in fp32: with AVX-512, with AVX2.
LANES: Final = (16, 8)
# The kernel's matrix product takes four keys at a time (MKL 2024.2).
_QUAD: Final = 4
# A block's width grows by this many keys, and shrinks when twice as many are free: then all rows are copied.
_WIDTH: Final = 64
# The blocks of one runner take at most this much memory; rows that do not fit have calls of their own.
MOST_BYTES: Final = 128 << 20
# A block that no step used for this many steps is dropped.
_IDLE_STEPS: Final = 64


class Row(Protocol):
    """A row of a decode batch (`realexec.model.model_runner.DecodeRow`): its KV and its newest position."""

    @property
    def position(self) -> int: ...

    @property
    def kv(self) -> RequestKV: ...


def last_columns(position: int, width: int, lanes: int) -> list[int]:
    """The columns behind a block's ``width`` where a position is read while it is among a row's last keys."""
    place, rest = position % lanes, position % _QUAD
    columns = [width + place] if place < lanes - _QUAD else []
    return [*columns, width + lanes - _QUAD + rest] if rest < _QUAD - 1 else columns


@cache
def _masks(width: int, lanes: int) -> torch.Tensor:
    """For every number of keys a row may have: 0 for the columns that it reads, else -inf."""
    keys = torch.arange(width + lanes)[:, None]
    columns = torch.arange(width + lanes - 1)[None]
    whole, fours, last = keys // lanes * lanes, keys % lanes // _QUAD * _QUAD, width + lanes - _QUAD
    read = (columns < whole.clamp(max=width)) | ((columns >= width) & (columns < width + fours))
    read |= (columns >= last) & (columns < last + keys % _QUAD)
    return torch.zeros(read.shape).masked_fill_(~read, float("-inf"))


class Block:
    """Keys and values [layer, 2, row, head, column, head dim] of rows whose last key is in one KEY_BLOCK."""

    def __init__(self, shape: KvShape, lanes: int, number: int, rows: int) -> None:
        """``number``: of the KEY_BLOCK, from 0. ``rows``: the most of a batch."""
        self._shape, self._lanes, self.number = shape, lanes, number
        self._kv: list[RequestKV | None] = [None] * rows
        self._copied = [[0] * len(shape.layers) for _ in range(rows)]
        self._pairs = torch.empty(0)
        self.width = -1
        self.used = 0  # the step that last used it

    def holds(self, kv: RequestKV) -> bool:
        """Whether it has a copy of this request's KV."""
        return any(kv is one for one in self._kv)

    @property
    def size_bytes(self) -> int:
        """Memory that its keys and values take."""
        size: int = self._pairs.numel() * self._shape.dtype.itemsize
        return size

    def bytes_for(self, keys: int) -> int:
        """Memory that it needs for rows of this many keys."""
        columns = self._width_for(keys) + self._lanes - 1
        return len(self._kv) * columns * self._shape.position_bytes * len(self._shape.layers)

    def seat(self, rows: Sequence[Row]) -> list[int]:
        """Give each request's KV a row of the block, and free the rows of all others; returns the rows."""
        keys = max(row.position + 1 for row in rows)
        width = self._width_for(keys)
        if not width <= self.width < width + 2 * _WIDTH:
            self._resize(width)
        here = {id(row.kv) for row in rows}
        seats = {id(kv): place for place, kv in enumerate(self._kv) if kv is not None and id(kv) in here}
        free = [place for place, kv in enumerate(self._kv) if id(kv) not in seats]
        for place in free:
            self._kv[place] = None
        for row in rows:
            if id(row.kv) not in seats:
                place = seats[id(row.kv)] = free.pop(0)
                self._kv[place], self._copied[place] = row.kv, [0] * len(self._shape.layers)
        return [seats[id(row.kv)] for row in rows]

    def bring(self, layer: int, place: int, positions: int) -> None:
        """Copy a row's earlier keys and values of a layer, unless the last steps have left them here."""
        index = layer - self._shape.layers.first
        copied, kv = self._copied[place][index], self._kv[place]
        self._copied[place][index] = positions + 1  # the step adds the newest one
        if copied in (positions, positions + 1):
            return
        assert kv is not None
        begin = positions // self._lanes * self._lanes
        ours, theirs = self._pairs[index, :, place], kv.pairs(layer, positions).permute(1, 2, 0, 3)
        fitting = min(positions, self.width)
        ours[:, :, :fitting] = theirs[:, :, :fitting]
        for position in range(begin, positions):
            for column in last_columns(position, self.width, self._lanes):
                ours[:, :, column] = theirs[:, :, position]

    def of_layer(self, layer: int) -> torch.Tensor:
        """Keys and values of one layer, [2, row, head, column, head dim]."""
        return self._pairs[layer - self._shape.layers.first]

    def _width_for(self, keys: int) -> int:
        most = (self.number + 1) * KEY_BLOCK - self._lanes
        return max(min(-(-keys // _WIDTH) * _WIDTH, most), keys // self._lanes * self._lanes)

    def _resize(self, width: int) -> None:
        shape, columns = self._shape, width + self._lanes - 1
        self.width = width
        # Zeros, as hidden values must be finite.
        self._pairs = torch.zeros(
            (len(shape.layers), 2, len(self._kv), shape.heads, columns, shape.head_dim), dtype=shape.dtype
        )
        self._kv = [None] * len(self._kv)


class Call:
    """One attention call of a step, for the rows ``rows`` of its batch; the same in every layer."""

    def __init__(self, block: Block, batch: Sequence[Row], rows: Sequence[int], lanes: int) -> None:
        ours = [batch[row] for row in rows]
        self._block, self.rows = block, rows
        self._places, self._positions = block.seat(ours), [row.position for row in ours]
        filled = max(self._places) + 1
        order, keys = [0] * filled, [1] * filled
        written: list[tuple[int, int, int]] = []  # row of the batch, row of the block, column
        for row, place, position in zip(rows, self._places, self._positions):
            order[place], keys[place] = row, position + 1
            columns = last_columns(position, block.width, lanes)
            for column in [position, *columns] if position < block.width else columns:
                written.append((row, place, column))
        self._order, self._here = torch.tensor(order), torch.tensor(self._places)
        self._from, self._to, self._columns = torch.tensor(written).T
        self._mask = _masks(block.width, lanes)[keys][:, None, None]

    def attend(self, index: int, queries: torch.Tensor, pairs: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attention of these rows in layer ``index``, [rows, heads * head dim].

        ``queries`` [1, heads, batch, head dim] and ``pairs`` [batch, 2, kv heads, head dim] of all rows.
        """
        for place, position in zip(self._places, self._positions):
            self._block.bring(index, place, position)
        here = self._block.of_layer(index)
        here[:, self._to, :, self._columns] = pairs[self._from]
        keys, values = here[:, : len(self._order)].unbind()
        attended = scaled_dot_product_attention(
            queries[0].transpose(0, 1)[self._order][:, :, None],
            keys,
            values,
            attn_mask=self._mask,
            scale=scaling,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
        return attended[self._here].reshape(len(self.rows), -1)


class Plan(NamedTuple):
    """How a step's batch attends: ``calls`` for several rows each, and the rows that attend ``alone``."""

    calls: list[Call]
    alone: list[int]

    def attend(
        self, index: int, layer: Any, *, batch: Sequence[Row], queries: torch.Tensor, pairs: torch.Tensor
    ) -> torch.Tensor:
        """Attention of the batch's rows in one layer, in order; their newest KV has been written."""
        scaling = layer.self_attn.scaling
        if len(self.calls) == 1 and not self.alone:
            return self.calls[0].attend(index, queries, pairs, scaling)
        attended = queries.new_empty((len(batch), queries.shape[1] * queries.shape[3]))
        for call in self.calls:
            attended[call.rows] = call.attend(index, queries, pairs, scaling)
        for row in self.alone:
            keys, values = batch[row].kv.read(index, batch[row].position + 1)
            attended[row] = attend(layer, queries[:, :, row : row + 1], keys, values)[0]
        return attended


class BatchedAttention:
    """Plans the attention of a runner's decode batches; keeps the blocks to which their rows are copied."""

    def __init__(self, shape: KvShape, heads: int, rows: int, device: str) -> None:
        """``heads``: of queries. ``rows``: of every decode batch."""
        exact = torch.device(device).type == "cpu" and shape.dtype == torch.float32 and rows > 1
        self._agreement = agreement(heads, shape.heads, shape.head_dim) if exact else None
        self._shape, self._rows = shape, rows
        self._blocks: list[Block] = []
        self._steps = 0

    def plan(self, batch: Sequence[Row]) -> Plan:
        """Plan one step: the rows whose last keys are in the same KEY_BLOCK attend by one call."""
        self._steps += 1
        together: dict[int, list[int]] = {}
        alone = []
        lanes, most_keys = self._agreement or Agreement(0, 0)
        for index, row in enumerate(batch):
            number, place = divmod(row.position + 1, KEY_BLOCK)
            if 0 < place <= most_keys:
                together.setdefault(number, []).append(index)
            else:  # a whole KEY_BLOCK has no last keys
                alone.append(index)
        self._blocks = [block for block in self._blocks if self._steps - block.used <= _IDLE_STEPS]
        calls = []
        for number, rows in together.items():
            block = self._block(number, [batch[row] for row in rows], lanes) if len(rows) > 1 else None
            if block is None:
                alone += rows
            else:
                calls.append(Call(block, batch, rows, lanes))
        return Plan(calls, alone)

    def _block(self, number: int, rows: Sequence[Row], lanes: int) -> Block | None:
        """The block that has copies of some of these rows, or a new one; None: it would be too large."""
        mine = [block for block in self._blocks if block.number == number]
        block = next((block for block in mine if any(block.holds(row.kv) for row in rows)), None)
        if block is None:
            block = Block(self._shape, lanes, number, self._rows)
        others = sum(other.size_bytes for other in self._blocks if other is not block)
        if others + block.bytes_for(max(row.position + 1 for row in rows)) > MOST_BYTES:
            return None
        if block not in self._blocks:
            self._blocks.append(block)
        block.used = self._steps
        return block


class Agreement(NamedTuple):
    """Where one call gives the bits of a call for each row on this machine."""

    lanes: int
    """Elements of a vector of the kernel."""
    most_keys: int
    """The most keys that a row may have in its last KEY_BLOCK."""


class _Checked(NamedTuple):
    position: int
    kv: RequestKV


@cache
def agreement(heads: int, kv_heads: int, head_dim: int) -> Agreement | None:
    """The kernel's vector length and the widest rows with which the bits agree; None: with none they do."""
    shape = KvShape(LayerRange(0, 1), kv_heads, head_dim, torch.float32)
    found = [Agreement(lanes, _most_keys(shape, heads, lanes)) for lanes in LANES]
    best = max(found, key=lambda one: one.most_keys)
    return best if best.most_keys else None


def _most_keys(shape: KvShape, heads: int, lanes: int) -> int:
    most = 0
    for width in range(_WIDTH, KEY_BLOCK + 1, _WIDTH):
        if not all(_agrees(shape, heads, rows, lanes) for rows in _compared(width)):
            break
        most = width
    return most


def _compared(width: int) -> list[Sequence[int]]:
    """Numbers of keys of rows whose bits are compared in a block of this width.

    Every remainder of a vector, in short and in long rows; few rows where they take more memory.
    """
    vector, widest = max(LANES), min(width, KEY_BLOCK - 1)
    short = [range(1, 3 * vector + 1)] if width == _WIDTH else []
    spread = [rest + 7 * rest * vector % width for rest in range(1, vector)]
    second = [KEY_BLOCK + keys for keys in (1, vector + 6, widest - 5, widest)]
    return [*short, [*spread, *range(widest - 12, widest + 1, 4)], second]


@torch.inference_mode()
def _agrees(shape: KvShape, heads: int, keys_of: Sequence[int], lanes: int) -> bool:
    """Whether one call for random rows of these numbers of keys gives the bits of a call for each row."""
    drawn, memory = torch.Generator().manual_seed(0), HeapMemory("cpu")
    rows = [_Checked(keys - 1, RequestKV(shape, keys, memory)) for keys in keys_of]
    for row in rows:
        size = (1, shape.heads, row.position + 1, shape.head_dim)
        row.kv.write(0, 0, torch.randn(size, generator=drawn), torch.randn(size, generator=drawn))
    queries = torch.randn((1, heads, len(rows), shape.head_dim), generator=drawn)
    pairs = torch.stack([row.kv.pairs(0, row.position + 1)[-1] for row in rows])
    call = Call(Block(shape, lanes, keys_of[0] // KEY_BLOCK, len(rows)), rows, range(len(rows)), lanes)
    together = call.attend(0, queries, pairs, shape.head_dim**-0.5)
    single = [
        scaled_dot_product_attention(
            query, *row.kv.read(0, row.position + 1), enable_gqa=heads != shape.heads
        )
        for query, row in zip(queries.split(1, dim=2), rows)
    ]
    equal: bool = torch.equal(together, torch.cat(single).reshape(len(rows), -1))
    return equal
