"""A worker with parameters computes once before it says that it is ready, and keeps nothing of that."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.model.model_runner import ModelRunner
from realexec.wire.messages import Open
from realexec.worker.slot_memory import SlotMemory
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("warm", "kv_bytes"), [(True, 1 << 20), (False, 1 << 20), (True, 64)])
def test_a_worker_has_computed_before_it_is_open(
    monkeypatch: pytest.MonkeyPatch, warm: bool, kv_bytes: int
) -> None:
    done: list[str] = []
    for name in ("prefill", "decode"):
        plain = getattr(ModelRunner, name)

        def noted(self: Any, *given: Any, name: str = name, plain: Any = plain) -> Any:
            done.append(name)
            return plain(self, *given)

        monkeypatch.setattr(ModelRunner, name, noted)
    memory = SlotMemory(
        model=TINY,
        seed=5,
        batch_size=4,
        message=Open(slot=0, kv_bytes=kv_bytes, warm=warm, host=False, paths=None, every_step=False),
        send=print,
        later=print,
    )
    assert done == (["prefill", "decode"] if warm else [])
    assert not memory.engine.has_residents() and not memory.engine.holds(-1)
