"""Where NCCL is refused, and what groups send. NCCL has run nowhere; Gloo runs as all transports do."""

import re
from collections.abc import Sequence

import pytest

from realexec.memory.arena import Arena
from realexec.transport_registry import lack_between, opened
from realexec.transports import groups
from realexec.transports.base import PeerLost
from realexec.transports.groups import CHUNK_BYTES, GroupTransport, _batches, missing
from serving.vocabulary.errors import UserError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.real


def test_without_a_driver_it_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_DRIVERS", ())
    assert missing("gloo") is None
    lack = "NCCL moves bytes between GPUs, and there is no NVIDIA driver"
    assert missing("nccl") == lack
    with Arena.create(4096) as arena, pytest.raises(UserError) as told:
        opened("nccl", arena)
    assert str(told.value) == f"transport=nccl cannot be used here ({lack}); or write transport=tcp"


@pytest.mark.parametrize(
    ("device", "gpus", "lack"),
    [
        ("cpu", 2, "workers compute on the CPU: write device=cuda"),
        ("cuda", 1, "both workers are on one GPU, .* write transport=peer_copy"),
        ("cuda:1", 2, "both workers are on one GPU, .* write transport=peer_copy"),
        ("cuda", 2, None),
    ],
)
def test_nccl_wants_a_gpu_for_each_worker(
    device: str, gpus: int, lack: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    found = lack_between("nccl", device)
    assert found is None if lack is None else re.search(lack, found or "")
    assert lack_between("gloo", device) is None


def test_two_workers_on_one_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupTransport, "_gpu", lambda _: "a host, a GPU")
    with Arena.create(4096) as arena:
        ours, theirs = GroupTransport("gloo", arena), GroupTransport("gloo", arena)
        with pytest.raises(PeerLost, match=r"both workers are on one GPU, .* write transport=peer_copy"):
            ours.connect(theirs.address())
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ([8, 8, 8], [[8, 8, 8]]),
        ([2 * CHUNK_BYTES + 8], [[CHUNK_BYTES], [CHUNK_BYTES], [8]]),
        ([8, CHUNK_BYTES, 8], [[8], [CHUNK_BYTES], [8]]),
        ([CHUNK_BYTES + 4, CHUNK_BYTES - 4], [[CHUNK_BYTES], [4, CHUNK_BYTES - 4]]),
    ],
)
def test_both_sides_part_what_is_read_alike(sizes: Sequence[int], messages: list[list[int]]) -> None:
    here = [(1000 * place, size) for place, size in enumerate(sizes)]
    there = [(7 + size, size) for size in sizes]
    for parts in (here, there):
        assert [[size for _, size in batch] for batch in _batches(parts)] == messages
