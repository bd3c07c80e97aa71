"""Faults of scalers, arbiters, provisioners, live policies and schedulers, and caches, told as theirs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, IlpFree
from policies.provisioning import StoreProvisioner
from servetwin.assemble.copies import pooled
from serving.parameters.cache_answers import CheckedCopies
from serving.parameters.host_cache import Evicted
from serving.parameters.parameter_pool import Reload
from serving.protocols.live import LiveChoice, LivePlan, LiveTarget, LiveView
from serving.protocols.live_answers import CheckedLivePolicy, CheckedLiveScheduler
from serving.protocols.planning import Edge, Source
from serving.protocols.provision_answers import CheckedProvisioner
from serving.protocols.provisioning import GpuSlot, Provision, Provisioned
from serving.protocols.scale_answers import CheckedArbiter, CheckedScaler
from serving.protocols.scaling import NoChangeBounds, Offer, ScaleDecision
from serving.vocabulary.errors import PolicyError
from tests.worlds.elastic_world import Setting, Told
from tests.worlds.faulty_policies import VIEW
from tests.worlds.parts import A, B


@dataclass
class Says:
    """A policy of any kind that always answers, or raises, this."""

    answer: Any

    def scale(self, *shown: object) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    no_change_bounds = no_change_until_ns = provision = select = plan = hosts = end = before_release = (
        may_release
    ) = scale
    offer = scale
    ahead = solve_ns = 0
    embeds = True

    @property
    def scheduler(self) -> Any:
        return IlpFree()


def decision(
    act: Any = "drain", role: Any = "prefill", count: Any = 1, *ids: Any, **other: Any
) -> ScaleDecision:
    return replace(
        ScaleDecision(act=act, model="m", role=role, count=count, instances=ids, reason="because"), **other
    )


SCALES = [
    (None, "the answer is a NoneType, not a tuple"),
    ([], "the answer is a list, not a tuple"),
    (("drain",), "a decision is a str, not a ScaleDecision"),
    ((decision("explode"),), "the act 'explode' is unknown"),
    ((decision(["load"]),), "the act ['load'] is unknown"),
    ((decision("load", model="other"),), "the view is of model m, not 'other'"),
    ((decision("load", "both"),), "m has no role 'both'"),
    ((decision("load", "prefill", 0),), "count must be an int of 1 or more, not 0"),
    ((decision("load", "prefill", True),), "count must be an int of 1 or more, not True"),
    ((decision("load", "prefill", 1.0),), "count must be an int of 1 or more, not 1.0"),
    ((decision("load", "prefill", 2),), "4 prefill instances are above 3"),
    ((decision("load", "prefill", 1, 0),), "load must name no instances"),
    ((decision("drain", "decode", 1, 5),), "0 decode instances are below 1"),
    ((decision("drain", "prefill", 1, 2),), "drain does not apply to instance 2 of m in its state"),
    ((decision("drain", "prefill", 1, 5),), "drain does not apply to instance 5 of m in its state"),
    ((decision("drain", "prefill", 2, 0),), "count is 2 and 1 instances are named"),
    ((decision("drain", "prefill", 2, 0, 0),), "instance 0 is named twice"),
    ((decision("drain", "prefill", 1, 0), decision("mutate", "decode", 1, 0)), "instance 0 is named twice"),
    ((decision("drain", "prefill", 1, True),), "instances is not a tuple of ids"),
    ((decision("drain", "prefill", 1, np.int64(0)),), "instances is not a tuple of ids"),
    ((decision("drain", "prefill", 1, 0, instances=[0]),), "instances is not a tuple of ids"),
    (
        (decision("mutate", "prefill", 1, 0),),
        "only a prefill instance can change its role, and only to decode",
    ),
    (
        (decision("cancel_drain", "prefill", 1, 0),),
        "cancel_drain does not apply to instance 0 of m in its state",
    ),
    ((decision("revive", "prefill", 1, 8),), "revive does not apply to instance 8 of m in its state"),
    ((decision("limit_batch", "prefill", 8),), "limit_batch must name instances"),
    ((decision("limit_batch", "prefill", 8, 2),), "limit_batch does not apply to instance 2 of m"),
    ((decision("limit_batch", "prefill", 0, 0),), "count must be an int of 1 or more, not 0"),
    ((decision("drain", "prefill", 1, 0, reason=""),), "the reason is empty"),
    ((decision("drain", "prefill", 1, 0, reason=None),), "the reason must be a str, not a NoneType"),
    (SystemExit(0), "raised SystemExit: 0"),
    (ZeroDivisionError("no rate"), "raised ZeroDivisionError: no rate (test_elastic_policy_faults.py line "),
]


@pytest.mark.parametrize(("answer", "words"), SCALES)
def test_a_scalers_fault(answer: Any, words: str) -> None:
    with pytest.raises(PolicyError, match="Says, method scale, outside of events") as told:
        CheckedScaler(Says(answer)).scale(VIEW)
    assert words in str(told.value) and "; it must return a tuple of ScaleDecision" in str(told.value)


def test_what_a_scaler_may_answer() -> None:
    fine = (
        decision("cancel_drain", "prefill", 1, 2), decision("mutate", "decode", 1, 0),
        decision("load", "prefill", 1), decision("shortage", "decode", 9), decision("drain", "prefill", 1, 1),
    )  # fmt: skip
    assert CheckedScaler(Says(fine)).scale(VIEW) == fine
    assert CheckedScaler(Says((decision("revive", "decode", 1, 7),))).scale(VIEW)
    assert CheckedScaler(Says((decision("limit_batch", "prefill", 8, 0), fine[4]))).scale(VIEW)
    assert CheckedScaler(StoreProvisioner()).no_change_bounds is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer", [0, NoChangeBounds(1, float("nan"), 1), NoChangeBounds(True, 1, 1), OSError()]
)
def test_bounds_or_a_time_that_are_none(answer: Any) -> None:
    bounds = CheckedScaler(Says(answer)).no_change_bounds
    assert bounds is not None
    with pytest.raises(PolicyError, match="Says, method no_change_bounds,"):
        bounds(VIEW)
    until = CheckedScaler(Says(1.0)).no_change_until_ns
    assert until is not None
    with pytest.raises(PolicyError, match=r"Says, method no_change_until_ns, .* the answer is a float"):
        until(VIEW)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (decision("drain"), "the answer is neither"),
        (Offer(-1, 0.5, "m", "prefill", 1), "the answer is neither"),  # type: ignore[arg-type]
        (Offer(-1, 0, "other", "prefill", 1), "the view is of model m, not 'other'"),
        (Offer(-1, 0, "m", "prefill", 2), "drain does not apply to instance 2 of m in its state"),
        (AttributeError("rules_of"), "raised AttributeError: rules_of"),
    ],
)
def test_an_arbiters_fault(answer: Any, words: str) -> None:
    with pytest.raises(PolicyError, match="Says, method offer,") as told:
        CheckedArbiter(Says(answer)).offer(VIEW)
    assert words in str(told.value)


def test_what_an_arbiter_may_answer() -> None:
    offer = Offer(-1, 0, "m", "prefill", 1)
    assert CheckedArbiter(Says(offer)).offer(VIEW) is offer
    assert CheckedArbiter(Says(None)).offer(VIEW) is CheckedArbiter(None).offer(VIEW) is None


SEATS = (GpuSlot(3, (0,), 0, (), False), GpuSlot(4, (1,), 0, (), True))
WANTED = Provision("m", "prefill", 1, SEATS, (Source(("replica", 1), ()),), (), ("ssd",), 0)
EDGE = Edge((("ssd", 0),), (("replica", 3),), 0, (), "from its own disk")


def provisioned(*edges: Any, **other: Any) -> Provisioned:
    return replace(Provisioned(edges, False, "because"), **other)


PROVISIONS = [
    (None, "the answer is a NoneType"),
    (provisioned(edges=[EDGE]), "edges is not a tuple"),
    (provisioned(EDGE, overlap=1), "overlap is neither True nor False"),
    (provisioned(EDGE, reason=""), "the reason is empty"),
    (provisioned(obstacle="bad luck"), "the obstacle 'bad luck' is unknown"),
    (provisioned("edge"), "an edge is a str, not an Edge"),
    (provisioned(EDGE, EDGE), "('replica', 3) twice"),
    (
        provisioned(EDGE, replace(EDGE, targets=(("replica", 4),))),
        "the edges start 2 instances, more than the 1 wanted",
    ),
    (provisioned(replace(EDGE, targets=(("replica", 9),))), "('replica', 9) is not a free seat"),
    (provisioned(replace(EDGE, targets=(("replica", True),))), "each (kind, number)"),
    (provisioned(replace(EDGE, targets=())), "an edge must have a source and a target"),
    (provisioned(replace(EDGE, sources=(("replica", 2),))), "('replica', 2) has no parameters at that time"),
    (provisioned(replace(EDGE, sources=(("remote", 0),))), "('remote', 0) has no parameters at that time"),
    (provisioned(replace(EDGE, sources=(("ssd", 0), ("ssd", 0)))), "named twice"),
    (provisioned(replace(EDGE, rate_bytes_per_s=-1)), "rate_bytes_per_s must be an int of 0 or more"),
    (provisioned(replace(EDGE, reason=None)), "the reason must be a str, not a NoneType"),
    (provisioned(replace(EDGE, shards=("all",))), "the shares must sum to 1"),
    (SystemExit(), "raised SystemExit"),
]


@pytest.mark.parametrize(("answer", "words"), PROVISIONS)
def test_a_provisioners_fault(answer: Any, words: str) -> None:
    with pytest.raises(PolicyError, match="Says, method provision,") as told:
        CheckedProvisioner(Says(answer)).provision(WANTED)
    assert words in str(told.value)
    assert CheckedProvisioner(Says(provisioned(EDGE))).provision(WANTED) == provisioned(EDGE)


CHOICE = LiveChoice((LiveTarget(3, None, True),), 0, 0, 1, 0)


@pytest.mark.parametrize("answer", [None, [3], (True,), (3.0,), (4,), (3, 3), SystemExit(0)])
def test_a_live_policys_fault(answer: Any) -> None:
    with pytest.raises(PolicyError, match=r"Says, method select, .*; it must return a tuple of replica ids"):
        CheckedLivePolicy(Says(answer)).select(CHOICE)
    assert CheckedLivePolicy(Says((3,))).select(CHOICE) == (3,)


def test_what_a_live_policy_has_is_checked_before_it_is_asked() -> None:
    with pytest.raises(PolicyError, match=r"LiveScaling, attribute embeds, .* the value is a str"):
        policy = LiveScaling(BestEffort(), 0)
        policy.embeds = "yes"  # type: ignore[assignment]
        CheckedLivePolicy(policy)
    for ahead, words in ((-1, "below 0"), (1.0, "a float"), (True, "a bool")):
        scheduler: Any = BestEffort()
        scheduler.ahead = ahead
        with pytest.raises(PolicyError, match=f"BestEffort, attribute ahead, .* the value is {words}"):
            CheckedLiveScheduler(scheduler)


SHOWN = LiveView(4, 10, (5, 5))


@pytest.mark.parametrize(
    "answer",
    [
        "split",
        LivePlan("spilt", (), (), "x"),  # type: ignore[arg-type]
        LivePlan("split", (1,), (), "x"),
        LivePlan("split", (1, 5), (), "x"),
        LivePlan("split", (1, True), (), "x"),
        LivePlan("pull", (), (), ""),
        LivePlan("pull", (), (), "x", 1),  # type: ignore[arg-type]
        IndexError(),
    ],
)
def test_a_live_schedulers_fault(answer: Any) -> None:
    with pytest.raises(
        PolicyError, match=r"Says, method plan, .*; it must return a LivePlan: rule pull or split"
    ):
        CheckedLiveScheduler(Says(answer)).plan(SHOWN)


@pytest.mark.parametrize(
    ("method", "arguments", "answers"),
    [
        ("hosts", (A, 0), [(0,), [2], [-1], [1, 0], [0, 0], [True], KeyError("m")]),
        ("may_release", (A, 1), [None, 1, SystemExit(0)]),
        ("before_release", (A, 1, 0), [0, Reload(A, ("ssd", 0), 2, (), "x")]),
        ("end", (None, (), True, 0), [None, ["m"], [Reload(A, ("ssd", 0), 0, (), "")]]),
        ("end", (None, (), True, 0), [[Reload(B, ("ssd", 0), 0, (Evicted(0, A, "ttl"),), "x")]]),
    ],
)
def test_a_cache_policys_fault(method: str, arguments: tuple[Any, ...], answers: list[Any]) -> None:
    for answer in answers:
        with pytest.raises(PolicyError, match=f"Says, method {method}, "):
            getattr(CheckedCopies(Says(answer), 2, [A]), method)(*arguments)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"Says, method deployed, .* raised AttributeError"):
        CheckedCopies(Says(0), 2, [A]).deployed(A, 0, 0, 0)  # type: ignore[arg-type]
    assert CheckedCopies(pooled({A: 1}, 2), 2, [A]).hosts(A, 0) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"whims": lambda: Says((decision("explode", model="m"),))}, "Says, method scale, event Woke at 0.1"),
        (
            {"whims": lambda: Says(SystemExit(0))},
            "Says, method scale, event Woke at 0.100000000 s: it raised",
        ),
        (
            {"whims": lambda: Says((decision("load"),)), "live": lambda: Says((99,))},
            "Says, method select, event Woke at 0.100000000 s: it returned (99,)",
        ),
    ],
)
def test_the_event_is_told_where_a_controller_asks(more: dict[str, Any], words: str) -> None:
    told = Told(Setting(hosts=4, gpus_per_host=1, **more))
    told.arrive(0)
    with pytest.raises(PolicyError) as fault:
        told.woke(100_000_000)
    assert words in str(fault.value)
