"""Memory apart from the arena, as on a GPU: what is copied when, in whose lane, and whole runs on it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from experiments import cli, realexec_cli
from realexec.memory.arena import Arena
from realexec.memory.device import Gpu, MemoryApart, SameMemory, device_for, device_of
from realexec.memory_of_slot import SlotMemory
from realexec.messages import Open
from realexec.parameters import HOST, HostedModels, copies_on_host
from realexec.tensor_memory import ArenaMemory, HostMemory
from realexec.weights import Weights
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
WITH_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])


class Lanes(MemoryApart):
    """Says which lanes were opened, and how many are open."""

    def __init__(self) -> None:
        self.opened = self.open = 0

    @contextmanager
    def lane(self) -> Iterator[None]:
        self.opened += 1
        self.open += 1
        yield
        self.open -= 1


def test_names_of_devices() -> None:
    assert isinstance(device_of("cpu"), SameMemory) and isinstance(device_of("apart"), MemoryApart)
    assert device_of("apart").torch_name == "cpu" == device_for("cpu", 3)
    for name in ("tpu", "cuda:", "cuda:x", "cuda:99", "cpu:0"):
        with pytest.raises(UserError, match=rf"model.device is '{name}', which is not here: torch sees"):
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
    what = Open(0, 1 << 20, True, host, None, False)
    return SlotMemory({**TINY, "device": device}, 5, 4, what, lambda _: None, lambda _: None)


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


@pytest.mark.parametrize("device", ["apart", WITH_GPU])
def test_a_run_that_loads_and_hands_over_changes_no_token(device: str, tmp_path: Path) -> None:
    assert realexec_cli.run([*RUN, f"device={device}", f"out={tmp_path}/run"]) == 0
    real: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text())["real"]
    assert real["loads"] >= 1 and real["live_passes"] > 0
    assert (real["tokens_different"], real["workers_lost"]) == (0, []) and real["tokens_checked"] > 100
    assert cli.run(["replay", f"{tmp_path}/run"]) == 0
