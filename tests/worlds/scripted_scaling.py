"""A scaler that answers as written."""

from typing import Any

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import IlpFree
from serving.protocols.scaling import Act, ScaleDecision, ScalingView
from serving.vocabulary.actions import AllocateGpus, Load
from serving.vocabulary.events import Woke
from tests.worlds.elastic_world import MS, Setting, Told


class Script:
    """A scaler that gives each of these answers once: what is to be done, with its instances or how many."""

    def __init__(self, *answers: tuple[tuple[Act, str, int, tuple[int, ...]], ...]) -> None:
        self._answers = list(answers)

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        answer = self._answers.pop(0) if self._answers else ()
        return tuple(
            ScaleDecision(
                act=act, model=view.model, role=role, count=count, instances=ids, reason="as written"
            )  # type: ignore[arg-type]
            for act, role, count, ids in answer
        )


def scripted(*answers: Any, prefill: int = 1, **more: Any) -> list[list[tuple[str, bool]]]:
    """By look of the monitor, the role of every instance that begins to load and whether it is live.

    Before each look a batch of prompts comes.
    """
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, start={"prefill": prefill, "decode": 1}, provision="multicast",
            whims=lambda: Script(*answers), live=lambda: LiveScaling(IlpFree(), 0, **more),
        )
    )  # fmt: skip
    found = []
    for period in range(1, len(answers) + 1):
        for number in range(6 * period - 6, 6 * period):
            told.arrive(number, prompt=16)
        told.now_ns = period * 100 * MS
        actions = told.controller.handle(told.now_ns, Woke())
        roles = {one.replica: one.role for one in actions if isinstance(one, AllocateGpus)}
        every = [one for one in actions if isinstance(one, Load)]
        found.append([(roles[load.targets[0][1]], load.every_layer) for load in every])
    return found
