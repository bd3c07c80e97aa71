"""The memory of a worker's slot: parameters, requests and their state, and the threads that fill it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final

import torch

from realexec.memory.arena import ALIGN_BYTES, Arena
from realexec.memory.device import CPU, device_for, device_of
from realexec.memory.shared_copies import SharedCopies
from realexec.memory.tensor_memory import ArenaMemory, ByteRange, HostMemory, Region
from realexec.model.held_request import HeldRequest
from realexec.model.kv import KvFull
from realexec.model.model_runner import ModelRunner
from realexec.system.thread_exceptions import raising
from realexec.transport_registry import DIRECT
from realexec.transports.base import Segment
from realexec.transports.shaped import Paths
from realexec.wire.messages import Fetch, FromWorker, Locate, Located, Open, PlacePart
from realexec.worker.mover import Mover
from realexec.worker.parameters import HostedModels, Parameters, copies_on_host
from realexec.worker.peers import Peers
from realexec.worker.step_engine import StepEngine
from serving.vocabulary.actions import Span
from serving.vocabulary.layers import LayerRange

# Room for gaps between regions, and for data smaller than a region.
SPARE_BYTES: Final = 1 << 20
KV: Final = "kv"
# A number that no request has.
WARM_UP: Final = -1
WARM_UP_TOKENS: Final = 64
# Where a request's state lies, as a worker reports it: (request, part, byte range of each piece). The part of
# KV is (first layer, last layer, first position, last position), of hidden states (next layer, rows).
Place = tuple[int, tuple[int, ...], tuple[ByteRange, ...]]


class SlotMemory:
    """Allocated on `Open`. Only the compute thread calls it, except for ``mover`` and ``later``."""

    def __init__(
        self,
        *,
        model: Mapping[str, Any],
        seed: int,
        batch_size: int,
        message: Open,
        send: Callable[[FromWorker], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        """``later`` queues a call that the compute thread makes between two steps."""
        devices = {"device": device_for(model.get("device", CPU), message.slot)}
        models = [{**keys, **devices} for keys in message.models or (model,)]
        self._models = HostedModels(models, seed)
        sizes = [self._models.layout(number, None).size_bytes for number in range(len(self._models))]
        copies = sum(sizes) + ALIGN_BYTES * len(sizes) if message.host else 0
        shared = SharedCopies.attach(message.copies, copies) if copies and message.copies else None
        copies = copies if shared is None else shared.size_bytes
        device, direct = device_of(devices["device"]), message.transport in DIRECT
        # Data that only the host uses lies first: the device has no memory for it. Peers read everything else
        # in the arena, or in the device's own memory; in that case the arena needs no pages for it.
        touched_bytes = copies if direct and device.own_memory else None
        arena = Arena.create(max(sizes) + copies + message.kv_bytes + SPARE_BYTES, touched_bytes, shared)
        host = copies_on_host(self._models, HostMemory(arena), shared) if message.host else []
        ends = [copy.region.offset + copy.region.size_bytes for copy in host]
        first = -(-max(ends, default=0) // ALIGN_BYTES) * ALIGN_BYTES
        if shared is not None:
            if shared.size_bytes > first:  # the last page is shared too, so nothing else may lie there
                arena.take(shared.size_bytes - first)
            first = shared.size_bytes
            shared.close()
        self._memory = ArenaMemory(arena, device, first, direct)
        self._later, self._batch_size = later, batch_size
        # Where KV lies: in memory that peers can read, if KV is to move at all; None: on the heap.
        self._state = self._memory if message.kv_bytes else None
        self._parameters = Parameters(self._models, self._memory, host)
        self.runner = self._runner(message.model, message.layers, message.warm)
        self.engine = StepEngine(self.runner)
        paths = None if message.paths is None else Paths.attach(message.paths)
        self.peers = Peers(
            message.slot,
            arena,
            paths=paths,
            transport=message.transport,
            host=message.bind,
            memory=self._memory,
        )
        self.mover = Mover(self.peers, self._parameters, send, lambda error: later(raising(error)))
        layers = [spec.layers for spec in self._models.specs]
        regions = self._parameters.regions()
        self.address = {**self.peers.address(regions), "layers": layers, "pinned": self._memory.pinned}
        self._told: dict[int, list[Region]] = {}  # copies of hidden states for peers to read, by request
        if message.warm and message.layers is None:
            self._warm_up()

    def _warm_up(self) -> None:
        """Run a dummy prompt and one decode step: a process's first ones take longer than later ones."""
        self.engine.assign(WARM_UP, [0] * WARM_UP_TOKENS, (), 2)
        with suppress(KvFull):
            self.engine.step([(WARM_UP, 0, WARM_UP_TOKENS)], False)
            self.engine.step((), True)
        self.engine.forget(WARM_UP)

    # The contents of the GPU's memory.

    @property
    def model_layers(self) -> int:
        """Layers of the model of which this worker has a part."""
        return self.runner.spec.layers

    def _runner(self, model: int, layers: Span | None, filled: bool) -> ModelRunner:
        """Make a runner of these layers, in the region that all models share in turn."""
        span = None if layers is None else LayerRange(*layers)
        copies = self._parameters.host[model] if filled and self._parameters.host else None
        runner = ModelRunner(
            self._models.keys[model],
            self._models.seeds[model],
            self._batch_size,
            layers=span,
            memory=self._memory,
            filled=filled and copies is None,
            state_memory=self._state,
            region=self._parameters.region,
        )
        if copies is not None:
            for unit in runner.weights.layout.units:
                runner.weights.copy_from(unit, copies)
        self._parameters.replica, self._parameters.model = runner.weights, model
        return runner

    def place(self, message: PlacePart) -> None:
        """Make room for these layers in the GPU's memory, none of them filled yet."""
        whole = (0, self._models.specs[message.model].layers)
        ours = self.runner.layers
        if (self._parameters.model, (ours.first, ours.last)) == (message.model, message.layers or whole):
            self.runner.weights.forget()
            return
        self.runner = self._runner(message.model, message.layers, filled=False)
        self.engine.use(self.runner)

    # State that peers read.

    def locate(self, message: Locate) -> Located:
        """Report where state of these requests lies, leaving out layers and positions that are not here."""
        places: list[Place] = []
        for number, request in enumerate(message.requests):
            held = self.engine.held(request)
            if message.what == KV:
                wanted = message.positions[number] if message.positions else None
                places += [(request, *place) for place in self._kv_places(held, message.layers, wanted)]
            else:
                places.append((request, *self._hidden_place(request, held)))
        return Located(message.transfer, tuple(places))

    def _kv_places(
        self, held: HeldRequest, layers: Span | None, wanted: Span | None
    ) -> Iterable[tuple[tuple[int, ...], tuple[ByteRange, ...]]]:
        """Publish each range of layers that have the same positions here."""
        whole = self.runner.layers
        first, last = layers or (whole.first, whole.last)
        start, most = wanted or (0, held.last_tokens)
        for positions, group in groupby(range(first, last), held.positions):
            rows, end = list(group), min(positions, most)
            if end > start and held.kv is not None:
                part = rows[0], rows[-1] + 1, start, end
                yield part, tuple(held.kv.publish(*part))

    def _hidden_place(self, request: int, held: HeldRequest) -> tuple[tuple[int, ...], tuple[ByteRange, ...]]:
        hidden = self.engine.hidden_of(held)
        region, tensor = self._region_like(hidden.shape, hidden.dtype)
        tensor.copy_(hidden)
        size_bytes = hidden.numel() * hidden.dtype.itemsize
        self.for_peer(region)
        self._told.setdefault(request, []).append(region)
        return (held.depth, hidden.shape[0]), ((region.offset, size_bytes),)

    def _region_like(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[Region, torch.Tensor]:
        size_bytes = torch.Size(shape).numel() * dtype.itemsize
        region = self._memory.take(size_bytes)
        return region, self._memory.tensor(region)[:size_bytes].view(dtype).view(tuple(shape))

    # Rows between the stages of a model.

    def rows(self, count: int) -> tuple[Region, torch.Tensor]:
        """Allocate room for ``count`` hidden states."""
        return self._region_like((count, self.runner.spec.config.hidden_size), self.runner.spec.dtype)

    def give(self, region: Region) -> None:
        """Free a region that no thread and no peer uses any more."""
        self._memory.give(region)

    def for_peer(self, region: Region) -> None:
        """Prepare a region for a peer to read."""
        self._memory.for_peer([(region.offset, region.size_bytes)])

    def from_peer(self, region: Region) -> None:
        """Take over a region that a transport has filled from a peer."""
        self._memory.from_peer([(region.offset, region.size_bytes)])

    # State that this worker reads from peers.

    def fetch(self, message: Fetch) -> None:
        """Make room for the state, and queue the read for the data threads."""
        segments: list[Segment] = []
        ends: list[Callable[[bool], None]] = []
        for request, part, theirs in message.places:
            held = self.engine.held(request)
            ours, end = self._kv_room(held, part) if message.what == KV else self._hidden_room(held, part)
            held.pins += 1
            segments += [Segment(far, near, size) for (far, size), (near, _) in zip(theirs, ours)]
            ends.append(end)

        def ended(came: bool) -> None:
            for end in ends:
                end(came)

        self.mover.fetch(
            message.transfer, message.source, segments, lambda came: self._later(lambda: ended(came))
        )

    def _kv_room(
        self, held: HeldRequest, part: Sequence[int]
    ) -> tuple[list[ByteRange], Callable[[bool], None]]:
        first, last, start, end = part
        kv = self.engine.room(held)

        def ended(came: bool) -> None:
            held.unpin()
            if came and held.kv is kv:
                kv.came(first, last, start, end)

        return kv.ranges(first, last, start, end), ended

    def _hidden_room(
        self, held: HeldRequest, part: Sequence[int]
    ) -> tuple[list[ByteRange], Callable[[bool], None]]:
        depth, rows = part
        config, dtype = self.runner.spec.config, self.runner.spec.dtype
        region, tensor = self._region_like((rows, config.hidden_size), dtype)

        def ended(came: bool) -> None:
            held.unpin()
            if came:
                self.from_peer(region)
                held.hidden, held.depth = tensor.clone(), depth
            self._memory.give(region)

        return [(region.offset, tensor.numel() * dtype.itemsize)], ended

    def wait(self) -> None:
        """Wait until the device has computed all of a step, even without sampling; only then does it end."""
        self._memory.wait()

    def close(self) -> None:
        """Release the pages that a GPU's driver has pinned; called when the process ends."""
        self._memory.close()

    def forget(self, request: int) -> None:
        """Drop all that is held of this request."""
        self.engine.forget(request)
        for region in self._told.pop(request, []):
            self._memory.give(region)
