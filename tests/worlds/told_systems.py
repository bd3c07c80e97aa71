"""Systems told one fact at a time: how they are set up, and the actions expected of them, in short."""

from dataclasses import replace
from typing import Any

from serving.record.invariants import check
from serving.vocabulary.actions import Action, AllocateGpus, Load, Run, Send, SwitchRole, Wake
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Role
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, LAYERS, MS, Setting, Told, bare

WHOLE = Part("m", 0, LAYERS)  # its one model


def static(prefill: int = 1, decode: int = 1, **more: Any) -> Told:
    """Prefill instances first; 16 blocks of 4 tokens each, 8 requests at a time, 16 prompt tokens a pass."""
    start: dict[Role, int] = {"prefill": prefill, "decode": decode}
    return Told(replace(Setting(elastic=False, hosts=4, start=start), **more))


def prompts(replica: int, *chunks: tuple[int, int], epoch: int = 0) -> Run:
    """A prefill pass over whole prompts, which are handed over."""
    whole = tuple((request, 0, tokens) for request, tokens in chunks)
    return Run(replica, epoch, whole, False, 1, True, "", True)


def send(transfer: int, requests: tuple[int, ...], source: int, target: int, tokens: int) -> Send:
    return Send(transfer, "kv", requests, source, target, tokens * KV_BYTES_PER_TOKEN, "")


def turn(told: Told, number: int) -> list[Action]:
    """As ``Placement.switch_role``, of which a static system has none."""
    actions: list[Action] = [SwitchRole(number, "decode", "")]
    service, engine = told.controller.services["m"], told.controller.engines[number]
    service.leave(number, actions)
    service.join(engine.replica, "decode", actions)
    check(told.controller)
    return bare(actions)


BOTH: dict[Role, int] = {"both": 0}


def both(start: int = 0, least: int = 0, most: int = 4, **more: Any) -> Told:
    return Told(Setting(start={"both": start}, bounds={"both": (least, most)}, **more))


def load(number: int, source: tuple[str, int], replica: int) -> Load:
    return Load(number, "m", (source,), (("replica", replica),), (), False, True, "", layers=WHOLE.layers)


def place(replica: int, role: str = "both", warm: bool = False) -> AllocateGpus:
    return AllocateGpus(replica, "m", (replica,), role, warm, "", WHOLE.layers)


def prompt(replica: int, request: int, tokens: int = 6) -> Run:
    return Run(replica, 0, ((request, 0, tokens),), False, 1, True, "")


def wait(told: Told, periods: int) -> list[Any]:
    """Periods of the load monitor with nothing between them; what was done but to wait."""
    found, start = [], told.now_ns // (100 * MS)
    for period in range(1, periods + 1):
        found += told.woke((start + period) * 100 * MS)
    return [action for action in found if not isinstance(action, Wake)]
