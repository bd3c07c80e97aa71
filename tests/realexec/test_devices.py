"""Memory apart from the arena, as on a GPU: what is copied when and on which stream, and whole runs."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from realexec.driver import driver
from realexec.memory.arena import Arena
from realexec.memory.device import Gpu, MemoryApart, SameMemory, device_for, device_of
from realexec.memory.tensor_memory import ArenaMemory, HostMemory
from realexec.model.weights import Weights
from realexec.transport_registry import opened
from realexec.transports.base import BadSegment, PeerLost, Segment
from realexec.wire.messages import Open
from realexec.worker.parameters import HOST, HostedModels, copies_on_host
from realexec.worker.slot_memory import SlotMemory
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from tests.worlds.arena_peers import known_words, serving_device
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
WITH_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])


class Lanes(MemoryApart):
    """Says which lanes were opened, and how many are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = self.open = 0

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        self.opened += 1
        self.open += 1
        yield
        self.open -= 1


def test_names_of_devices() -> None:
    assert isinstance(device_of("cpu"), SameMemory) and isinstance(device_of("apart"), MemoryApart)
    assert device_of("apart").torch_name == "cpu" == device_for("cpu", 3)
    for name in ("tpu", "cuda:", "cuda:x", "cuda:99", "cpu:0"):
        with pytest.raises(UserError, match=rf"model.device is '{name}', which is not available: torch sees"):
            device_of(name)


@pytest.mark.parametrize("count", [1, 4])
def test_workers_take_the_gpus_of_a_host_in_turn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert [device_for("cuda", slot) for slot in range(5)] == [f"cuda:{slot % count}" for slot in range(5)]
    assert device_for("cuda:2", 0) == "cuda:2", "one that is named is shared by all"


def test_only_what_is_named_is_copied_and_in_a_lane() -> None:
    lanes = Lanes()
    with Arena.create(4096) as arena:
        arena.buffer[:] = bytes(range(256)) * 16
        memory = ArenaMemory(arena, lanes, first=1024)
        alone, ours = arena.take(1024), arena.take(256)
        with pytest.raises(ValueError, match="is the host's alone, up to 1024"):
            memory.tensor(alone)
        assert memory.apart and memory.tensor(ours).tolist() == [255] * 256
        memory.to_device([(ours.offset, 2), (ours.offset + 100, 3)])
        assert (lanes.opened, lanes.open) == (1, 0)
        row = memory.tensor(ours).tolist()
        assert row[:3] == [0, 1, 255] and row[99:104] == [255, 100, 101, 102, 255]
        memory.tensor(ours)[:] = 7
        memory.to_host([(ours.offset + 10, 1)])
        assert memory.host(ours).tolist()[9:12] == [9, 7, 11] and lanes.opened == 2
        del memory, row


def test_what_a_gpu_is_asked_for_and_in_which_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUDA's part played: copies wait for what is computed, and are over before anybody is told."""
    calls: list[Any] = []

    class Stream:
        def __init__(self, device: Any) -> None:
            calls.append("a stream")

        def wait_stream(self, other: str) -> None:
            calls.append(f"wait for {other}")

        def synchronize(self) -> None:
            calls.append("over")

    @contextmanager
    def on(what: Any) -> Iterator[None]:
        calls.append("copy")
        yield

    runtime = SimpleNamespace(cudaHostRegister=lambda at, size, flags: calls.append((at, size, flags)) or 0)
    for name, played in {
        "Stream": Stream, "stream": on, "device": lambda _: nullcontext(), "cudart": lambda: runtime,
        "default_stream": lambda _: "what is computed",
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, played)
    gpu = Gpu(1)
    assert gpu.torch_name == "cuda:1"
    gpu._device = torch.device("cpu")
    with Arena.create(4096) as arena:
        memory = ArenaMemory(arena, gpu, first=1024)
        whole = memory._host
        assert gpu.pinned and calls == [(whole.data_ptr(), whole.numel(), 0)], (
            "the host's copies are pinned too"
        )
        assert memory.apart and memory._bytes.numel() == 3072
        calls.clear()
        arena.take(1024)
        ours = arena.take(64)
        arena.view(ours)[:] = b"7" * 64
        memory.to_device([(ours.offset, 64)])
        assert bytes(memory.tensor(ours).numpy()) == b"7" * 64
        memory.to_host([(ours.offset, 64)])
        turn = ["wait for what is computed", "copy", "over"]
        assert calls == ["a stream", *turn, *turn], "a thread has one stream"
        other = threading.Thread(target=memory.to_host, args=([(ours.offset, 64)],))
        other.start()
        other.join()
        assert calls[-4:] == ["a stream", *turn], "another one has its own"
        del memory, whole


@pytest.mark.parametrize("status", [0, 1])
def test_pages_that_the_driver_took_are_given_back_once(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    runtime = SimpleNamespace(
        cudaHostRegister=lambda at, size, flags: calls.append(("pin", at)) or status,
        cudaHostUnregister=lambda at: calls.append(("unpin", at)) or 0,
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("over"))
    gpu = Gpu(0)
    gpu._device = torch.device("cpu")
    with Arena.create(4096) as arena:
        memory = ArenaMemory(arena, gpu)
        at = memory._host.data_ptr()
        assert memory.pinned is (status == 0)
        memory.close()
        memory.close()
        assert calls == [("pin", at), *(["over", ("unpin", at)] if status == 0 else [])]
        assert memory.pinned is False
        del memory
    with Arena.create(4096) as arena:
        assert ArenaMemory(arena).pinned is None is ArenaMemory(arena, MemoryApart()).pinned


@pytest.mark.gpu
@NO_GPU
def test_a_driver_that_refuses_pages_is_no_fault_of_the_next_call() -> None:
    """CUDA keeps the refusal, and torch would raise it in whatever comes next."""
    with Arena.create(1 << 20) as arena:
        first, second = (ArenaMemory(arena, device_of("cuda")) for _ in range(2))
        assert (first.pinned, second.pinned) == (True, False)
        region = arena.take(64)
        second.to_device([(region.offset, 64)])
        assert not second.tensor(region).any()
        for memory in (second, first):
            memory.close()
        del first, second, memory


def test_a_run_says_whose_memory_could_not_be_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute = driver.execute
    told = (True, False)
    monkeypatch.setattr(driver, "execute", lambda *how, **more: replace(execute(*how, **more), pinned=told))
    words = ["run", "trace=azure_conv_like", "trace.limit=3", "trace.tokens_scale=0.02", "workers=2"]
    assert realexec_cli.run([*words, f"out={tmp_path}/run"]) == 0
    assert "did not pin the memory of worker 1: copies are slower" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["real"]["pinned"] == list(told)


@pytest.mark.parametrize("kind", ["peer_copy", "gloo"])
@pytest.mark.parametrize("device", ["apart", WITH_GPU])
def test_peers_copy_between_their_devices_and_arenas_have_nothing_of_it(device: str, kind: str) -> None:
    """But for what is the host's alone at the peer, which is read out of its arena."""
    size, first = 1 << 20, 1 << 18
    with serving_device(kind, device, size, first) as peer, Arena.create(size) as arena:
        memory = ArenaMemory(arena, device_of(device), 4096, direct=True)
        transport = opened(kind, arena, memory=memory)
        link = transport.connect(peer.address)
        parts = [Segment(0, 8192, 4096), Segment(first, 16384, 4096), Segment(size - 4096, 65536, 4096)]
        link.read(parts)
        for remote, local, length in parts:
            assert (
                memory.place(local, length).cpu().numpy().tobytes() == known_words(remote, length).tobytes()
            )
        assert not any(arena.buffer), "nothing was staged"
        before = memory.place(8192, 4096).cpu().clone()
        memory.from_peer([(8192, 4096)])
        memory.for_peer([(8192, 4096)])
        assert torch.equal(memory.place(8192, 4096).cpu(), before) and not any(arena.buffer)
        link.read([Segment(0, 0, 4096)])  # what the host has alone here
        assert bytes(arena.buffer[:4096]) == known_words(0, 4096).tobytes()
        with pytest.raises(BadSegment):
            link.read([Segment(size - 8, 8192, 16)])
        os.kill(peer.process.pid, signal.SIGKILL)
        peer.process.wait()
        with pytest.raises(
            PeerLost, match="its process has ended" if kind == "peer_copy" else "closed|broke"
        ):
            link.read([Segment(0, 8192, 8)])
        transport.close()
        del memory, before


def test_each_peer_of_a_gpu_gets_a_handle_of_its_own_and_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's part played by torch's fields: what the owner tells is JSON, and comes back as it was."""
    calls: list[Any] = []
    fields = (0, b"handle", 4096, 512, b"counter", 3, b"event", True)

    class Storage:
        device = "cpu"

        def _share_cuda_(self) -> tuple[Any, ...]:
            calls.append("shared")
            return fields

    class Block:
        def untyped_storage(self) -> Storage:
            return Storage()

        def storage_offset(self) -> int:
            return 7

        def numel(self) -> int:
            return 100

    class Empty:
        def set_(self, *how: Any) -> Any:
            calls.append(how[1:])
            return self

    def opened_by(*given: Any) -> Storage:
        calls.append(given)
        return Storage()

    monkeypatch.setattr(torch.cuda, "init", lambda: calls.append("init"))
    monkeypatch.setattr(torch.cuda, "device", lambda which: nullcontext())
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", opened_by, raising=False)
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, device: Empty())
    gpu, block = Gpu(0), Block()
    told = [json.loads(json.dumps(gpu.share(block))) for _ in range(2)]  # type: ignore[arg-type]
    assert calls == ["shared", "shared"]
    calls.clear()
    gpu.reach(told[1])
    assert calls == ["init", fields, (7, (100,), (1,))]


def test_a_peer_is_told_of_a_gpus_bytes_once_they_are_computed() -> None:
    """Nothing is copied for it, and still what was begun has to be over; what came is there already."""
    lanes = Lanes()
    with Arena.create(4096) as arena:
        memory = ArenaMemory(arena, lanes, direct=True)
        memory.for_peer([(0, 64)])
        assert (lanes.opened, lanes.open) == (1, 0)
        memory.from_peer([(0, 64)])
        assert lanes.opened == 1 and not any(arena.buffer)
        memory.to_device([(0, 64)])  # from a disk: it lies in the arena
        assert not memory.place(0, 64).any()
        del memory


def test_on_a_cpu_nothing_is_copied() -> None:
    with Arena.create(4096) as arena:
        memory = ArenaMemory(arena)
        region = arena.take(64)
        assert not memory.apart and memory.tensor(region).data_ptr() == memory.host(region).data_ptr()
        del memory


def bytes_of(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.cpu().numpy().tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize("device", ["apart", WITH_GPU])
def test_parameters_come_to_the_device_and_to_where_peers_read_them(device: str) -> None:
    models = HostedModels([TINY], 3)
    size = models.layout(0, None).size_bytes
    with Arena.create(3 * size) as arena:
        (cache,) = copies_on_host(models, HostMemory(arena))
        first = cache.region.offset + cache.region.size_bytes
        memory = ArenaMemory(arena, device_of(device), first)
        assert memory._bytes.numel() == arena.size_bytes - first, "none for the host's copies"
        layout = models.specs[0].layout(LayerRange(1, 3))
        by_cache, by_source = (Weights(layout, memory, torch.float32) for _ in range(2))
        for unit in layout.units:
            by_cache.copy_from(unit, cache)
            by_source.fill(unit, models.sources[0])
            expected = bytes_of(cache.on_host(unit))
            for weights in (by_cache, by_source):
                assert bytes_of(weights.tensors(unit)) == expected == bytes_of(weights.on_host(unit))
        assert by_cache.whole == by_source.whole == set(layout.units)
        del memory, cache, by_cache, by_source, weights


def slot_memory(device: str, host: bool) -> SlotMemory:
    what = Open(slot=0, kv_bytes=1 << 20, warm=True, host=host, paths=None, every_step=False)
    return SlotMemory(
        model={**TINY, "device": device},
        seed=5,
        batch_size=4,
        message=what,
        send=lambda _: None,
        later=lambda _: None,
    )


@pytest.mark.parametrize("device", ["cpu", "apart", WITH_GPU])
@pytest.mark.parametrize("host", [False, True])
def test_a_slot_has_room_for_the_same_on_every_device(device: str, host: bool) -> None:
    memory = slot_memory(device, host)
    regions = memory.address["regions"]
    assert set(regions) == ({"replica", f"{HOST} 0"} if host else {"replica"})
    assert memory.runner.weights.whole_layers == TINY["num_hidden_layers"]
    assert regions["replica"] == memory.runner.weights.region.offset


def test_hidden_states_are_where_peers_read_them_and_come_to_the_device() -> None:
    memory = slot_memory("apart", False)
    memory.engine.assign(7, [1, 2, 3], (), 4)
    held = memory.engine.held(7)
    hidden = memory.engine.hidden_of(held)
    (rows, ((offset, size),)) = memory._hidden_place(7, held)
    assert rows == (0, 3) and size == hidden.numel() * 4
    told = memory._memory._host[offset : offset + size].clone().view(torch.float32).view(hidden.shape)
    assert torch.equal(told, hidden)
    ranges, ended = memory._hidden_room(held, (2, 3))
    ((there, length),) = ranges
    held.pins += 1
    memory._memory._host[there : there + length] = memory._memory._host[offset : offset + size]
    ended(True)
    assert held.depth == 2 and torch.equal(held.hidden, hidden)


RUN = (
    "run", "trace=azure_conv_like", "journal=true", "system=blitzscale", "system.instances.split=false",
    "system.scaler.prefill=[0.01,0.02]", "system.live.slo_ms=0", "trace.rate_per_s=200", "workers=3",
    "trace.tokens_scale=0.05", "trace.limit=60",
)  # fmt: skip


@pytest.mark.parametrize("transport", ["shared_memory", "peer_copy", "gloo"])
@pytest.mark.parametrize("device", ["apart", WITH_GPU])
def test_a_run_that_loads_and_hands_over_changes_no_token(
    device: str, transport: str, tmp_path: Path
) -> None:
    words = [*RUN, f"device={device}", f"transport={transport}", f"out={tmp_path}/run"]
    assert realexec_cli.run(words) == 0
    real: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text())["real"]
    assert real["loads"] >= 1 and real["live_passes"] > 0 and real["transport"] == transport
    assert (real["tokens_different"], real["workers_lost"]) == (0, []) and real["tokens_checked"] > 100
    assert real["pinned"] == [True if device == "cuda" else None] * 3
    assert cli.run(["replay", f"{tmp_path}/run"]) == 0
