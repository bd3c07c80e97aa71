"""Wide random worlds of single steps: split or not, one to three models of one to seven layers on one to four
GPUs each, tiny memories, no instances at first, odd cool-downs, live or not. What is told is checked.
"""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree, StopTheWorld
from serving.engine.progress import EngineState
from serving.protocols.live import LivePolicy, LiveScheduler
from serving.services.colocated.service import Colocated
from serving.services.disaggregated.service import Disaggregated
from serving.vocabulary.actions import Action, AllocateGpus, Load, Preempt, ReleaseGpus, Run, Send
from serving.vocabulary.events import Event, Loaded, Lost, Ran
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from tests.worlds.elastic_world import MS, SIZE_BYTES, Setting, StepWorld, Whims

PROVISIONERS = ("binomial", "host", "host_or_ssd", "multicast", "naive", "one_to_one")
GONE = (EngineState.VACANT, EngineState.LOST)
PATIENCE_NS = 40_000 * MS  # behind the last arrival


@dataclass(frozen=True)
class WideSetting(Setting):
    """As wide as ``draw_setting`` draws it."""

    @property
    def room(self) -> int:
        """Tokens that one instance has memory for."""
        return self.kv_blocks * self.block_tokens


class WideWorld(StepWorld):
    """Checks which engine runs what, in which order, and how much KV is sent from where.

    ``computed``: request -> (replica, first layer, behind the last) of the passes that its KV is from.
    """

    setting: WideSetting

    def __init__(self, setting: WideSetting, random: Random, loses: bool = False) -> None:
        longest = {
            "step": random.choice([1, 30]), "load": random.choice([50, 400, 3000]),
            "send": random.choice([1, 60, 500]),
        }  # fmt: skip

        def span_ns(kind: str) -> int:
            least = 0 if random.random() < 0.05 else 1
            return random.randint(least, longest[kind]) * MS + random.choice([0, 0, 1])

        super().__init__(setting, span_ns)
        self.loses = loses
        self.fully_loaded = set(self.controller.engines)  # replicas that have all parameters
        self.came: dict[int, int] = {}  # layers that a replica has while it loads
        self.at_work: set[int] = set()
        self.computed: dict[int, list[tuple[int, int, int]]] = {}
        self.preempted: set[int] = set()
        self.finished: list[int] = []

    def tell(self, event: Event) -> None:
        if isinstance(event, Loaded):
            kind, number = self.loads[event.load][0].targets[event.target]
            if kind == "replica":
                self.came[number] = event.layers
                if event.fully_loaded:
                    self.fully_loaded.add(number)
        elif isinstance(event, Ran | Lost):
            self.at_work.discard(event.replica)
            self.finished += event.finished if isinstance(event, Ran) else ()
        super().tell(event)

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, AllocateGpus | ReleaseGpus):
                assert action.replica not in self.at_work, "an instance comes or goes while it runs"
                self.fully_loaded.discard(action.replica)
                self.came.pop(action.replica, None)
                if isinstance(action, AllocateGpus) and action.warm:
                    self.fully_loaded.add(action.replica)
            elif isinstance(action, Send):
                self._check_send(action)
            elif isinstance(action, Load):
                assert action.load not in self.loads
            elif isinstance(action, Preempt):
                self.preempted.add(action.request)
        super().carry_out(actions)

    def _run(self, run: Run) -> None:
        number, layers = run.replica, run.layers
        assert number not in self.at_work, f"replica {number} runs two passes"
        assert self.controller.engines[number].state not in GONE
        self.at_work.add(number)
        if layers is None:
            assert number in self.fully_loaded or self.setting.provision == "pipelined", (
                "it has not all parameters"
            )
            for request, start, _ in run.chunks:
                again = self.loses or request in self.preempted
                if start == 0:
                    assert again or request not in self.computed, f"prompt {request} is computed twice"
                    self.computed[request] = [(number, 0, self.setting.layers)]
        else:
            self._check_layers(run, *layers)
        super()._run(run)

    def _check_layers(self, run: Run, first: int, last: int) -> None:
        """A pass over layers it has, from where the last pass of its prompts ended."""
        if run.replica not in self.fully_loaded:
            assert last <= self.came.get(run.replica, 0), "it has not these layers"
            assert last < self.setting.layers, "it has not the head, which comes with the last layer"
        for request, start, tokens in run.chunks:
            assert (start, tokens) == (0, self.prompts[request])
            passes = self.computed.setdefault(request, [])
            while self.loses and passes and passes[-1][2] > first:
                passes.pop()  # with the instance that ran these
            assert (passes[-1][2] if passes else 0) == first, f"layers of {request} out of order"
            passes.append((run.replica, first, last))

    def _check_send(self, send: Send) -> None:
        for end in (send.source, send.target):
            assert self.controller.engines[end].state not in GONE, "sent from or to a replica that is gone"
        assert send.source != send.target
        prompts = [self.prompts[request] for request in send.requests]
        if send.what == "activations":
            assert send.size_bytes == 2 * sum(prompts)
        elif send.what == "kv":
            assert send.size_bytes == sum(self._kv_bytes(one, send.source) for one in send.requests)

    def _kv_bytes(self, request: int, source: int) -> int:
        """KV that this instance has of a prompt, which one or two have computed: all of it is sent."""
        passes, layers = self.computed[request], self.setting.layers
        kv_bytes = self.setting.kv_bytes.of(self.prompts[request])
        giver, keeper = passes[0][0], passes[-1][0]
        split = 0 if giver == keeper else max(last for replica, _, last in passes if replica == giver)
        assert source in (giver, keeper), f"KV of {request} is sent by {source}, which has none"
        given_bytes = kv_bytes * split // layers
        return kv_bytes - given_bytes if source == keeper else given_bytes

    def _load(self, load: Load) -> None:
        count = self.setting.layers
        self.loads[load.load] = load, set(range(len(load.targets)))
        span_ns = self.spans("load")
        # All layers are told of before the whole: the head comes last.
        for layers in range(1, count + 1) if load.every_layer else ():
            for target in range(len(load.targets)):
                soon_ns = self.now_ns + span_ns * layers // (count + 1)
                # Type: ignore[misc]
                self.at(soon_ns, lambda target=target, layers=layers: self._layer(load, target, layers))
        for target in range(len(load.targets)):
            # Type: ignore[misc]
            self.at(self.now_ns + span_ns, lambda target=target: self._whole(load, target))

    # The end.

    def assert_ended_well(self, requests: tuple[tuple[Request, int], ...]) -> None:
        """Each request that fits is served once, unless no seats are left; then all books are empty."""
        controller, room = self.controller, self.setting.room
        unfit = sum(request.prompt_tokens + request.max_new_tokens > room for request, _ in requests)
        assert self.ended["Reject"] == unfit and controller.arrived == len(requests)
        assert len(self.finished) == len({*self.finished}) == self.ended["finished"]
        assert self.loses or not self.ended["Fail"]
        assert sum(self.ended.values()) + len(self.outputs) == len(requests)
        for model in sorted({controller.requests[request].model for request in self.outputs}):
            assert self._may_wait_for_ever(model), f"no instance serves requests of {model}"
        if not self.outputs:
            self._assert_empty()

    def _may_wait_for_ever(self, model: str) -> bool:
        """Others hold all seats; or a scaler by chance still loads."""
        instances = self.controller.elastic.deployment.instances
        loads = any(one.state == "loading" for one in instances.live.values())
        served = all(instances.supply(model, role) for role in self.setting.start)
        return (self.setting.whims is not None and loads) or not (
            served or instances.free_slots(model).groups
        )

    def _assert_empty(self) -> None:
        for engine in self.controller.engines.values():
            if engine.state is not EngineState.LOST:
                assert engine.ledger.free_blocks == engine.ledger.total_blocks, f"KV left on {engine.id}"
        for service in self.controller.services.values():
            live = service.live
            assert not (live.requests or any(map(live.promised, self.controller.engines)))
            if isinstance(service, Colocated):
                assert not (service.backlog_tokens or service.kv_tokens or service.migrating_tokens)
            elif isinstance(service, Disaggregated):
                hand_overs = service.hand_overs
                assert not (service.backlog_tokens or hand_overs.demand_tokens or hand_overs.migrating_tokens)
                assert not hand_overs.waiting and not any(hand_overs.demands.values())


def draw_live(random: Random) -> LivePolicy:
    """A policy by chance; one kind does not share layers at all."""
    kinds: list[LiveScheduler] = [
        IlpFree(), IlpFree(), IlpFree(), BestEffort(), BestEffort(),
        Ilp(ahead=random.choice([2, 3]), solve_ns=random.choice([0, 5 * MS, 300 * MS])), StopTheWorld(),
    ]  # fmt: skip
    return LiveScaling(
        random.choice(kinds), random.choice([0, 0, 100]), tails_only=random.random() < 0.4,
        targets_per_partner=random.choice([1, 3, 10]), embedding=random.choice(["target", "source"]),
    )  # fmt: skip


def fit(models: dict[str, int], start: dict[Any, int], gpus: int) -> bool:
    """Whether the first instances find their GPUs, in groups where seats may be."""
    first = 0
    for size in models.values():
        for _ in range(sum(start.values())):
            first = -(-first // size) * size + size
    return first <= gpus


def draw_setting(random: Random) -> WideSetting:
    split = random.random() < 0.6
    count = random.choice([1, 1, 2, 3])
    models = {name: random.choice([1, 1, 2, 4]) for name in "abc"[:count]}
    gpus_per_host, hosts = random.choice([4, 4, 2]), random.choice([1, 2, 2, 3])
    if max(models.values()) > gpus_per_host:
        gpus_per_host = 4
    roles = ("prefill", "decode") if split else ("both",)
    start: dict[Any, int] = {role: random.choice([0, 1, 1, 2]) for role in roles}
    while not fit(models, start, hosts * gpus_per_host):
        start[max(start, key=start.__getitem__)] -= 1
    provision = random.choice(PROVISIONERS)
    caching = provision == "host_or_ssd" and random.random() < 0.5
    copies = "everywhere" if provision == "host" else "ttl" if caching else "pool"
    seed = random.getrandbits(32)
    live, whims = random.random() < 0.85, random.random() < 0.4
    if caching and not live:
        provision = "pipelined"  # does not fit live instances
    rules = {
        "prescale_from": random.choice([0, 1]), "prescale_by": random.choice([1, 2]),
        "scale_down_ms": random.choice([0, 1, 100, 333]),
    }  # fmt: skip
    bounds = {
        role: (random.choice([0, 0, least]), random.choice([max(1, least), 6]))
        for role, least in start.items()
    }
    layers, kv_blocks = random.choice([1, 2, 2, 3, 4, 7]), random.choice([4, 8, 16, 40])
    block_tokens, all_gb = random.choice([1, 4, 4, 16]), count * SIZE_BYTES / 1e9
    return WideSetting(
        models=models, hosts=hosts, gpus_per_host=gpus_per_host, start=start, bounds=bounds,
        provision=provision, copies=copies, rules=rules, layers=layers, kv_blocks=kv_blocks,
        block_tokens=block_tokens, whims=(lambda: Whims(Random(seed))) if whims else None,
        live=(lambda: draw_live(Random(seed))) if live else None,
        ways=tuple(way for way in ("cancel_drain", "revive", "mutate") if random.random() < 0.7),
        host_gb=random.choice([None, None, all_gb, 2 * all_gb]) if copies == "pool" else None,
        max_num_seqs=random.choice([1, 2, 4, 8]), max_num_batched_tokens=random.choice([1, 8, 16]),
        period_ns=random.choice([7 * MS, 50 * MS, 100 * MS, 100 * MS]), park_ns=random.choice([0, 300 * MS]),
        prefill_tokens_per_s=random.choice([20.0, 20.0, 100.0]), pass_ns=random.choice([0, 200 * MS]),
        kv_tokens_per_s=random.choice([1e6, 100.0]), scale_up_bytes_per_s=random.choice([0, 1000]),
        kv_bytes=KvBytes(random.choice([10, 7, 1])), coalesce=False,
    )  # fmt: skip


def draw_requests(random: Random, setting: WideSetting) -> tuple[tuple[Request, int], ...]:
    """(request, output tokens): bursts and pauses; some reserve too little, some never fit."""
    room, arrival_ns, found = setting.room, 0, []
    reserved, one_token = random.choice([0, 0, 0, 1]), random.random() < 0.1
    for id in range(random.randint(1, 50)):
        arrival_ns += random.choice([0, 0, 1, 10 * MS, 50 * MS, random.choice([1, 1000]) * MS])
        prompt = random.choice([1, random.randint(1, room - 1), random.randint(1, min(20, room - 1))])
        cap = random.choice([1, random.randint(1, room - prompt)])
        unfit = random.random() < 0.03
        cap = 1 if one_token else room + 1 if unfit else cap
        model = random.choice(sorted(setting.models))
        found.append((Request(id, arrival_ns, prompt, cap, model, 0, reserved), random.randint(1, 30)))
    return tuple(found)


def played(seed: int, loses: bool) -> WideWorld:
    """The world of a seed at its end; ``loses``: up to six replicas and two hosts, of which one stays."""
    random = Random(seed)
    setting = draw_setting(random)
    if loses:
        setting = replace(setting, host_gb=None, hosts=max(2, setting.hosts))
    requests = draw_requests(random, setting)
    world = WideWorld(setting, random, loses)
    for request, output_tokens in requests:
        world.arrive(request, output_tokens)
    last_ns = requests[-1][0].arrival_ns
    if loses:
        _lose(random, world, last_ns // MS + 2000)
    world.run(last_ns + PATIENCE_NS)
    world.assert_ended_well(requests)
    return world


def _lose(random: Random, world: WideWorld, span_ms: int) -> None:
    for _ in range(random.choice([1, 2, 3, 4])):
        world.lose(random.randint(0, span_ms) * MS, random.randint(0, 9))
    if random.random() < 0.2:
        at_ns = random.randint(0, span_ms) * MS
        world.lose(at_ns, random.randint(0, 6))
        world.lose(at_ns, random.randint(0, 6))
    hosts = world.setting.hosts
    for host in random.sample(range(hosts), random.choice([0, 0, 1, min(2, hosts - 1)])):
        world.lose_host(random.randint(0, span_ms) * MS, host)


def reached(world: WideWorld) -> Counter[str]:
    """What happened in a world: kinds of actions, and of its system."""
    found = Counter(type(action).__name__ for action in world.actions)
    found["split" if world.setting.split else "both"] += 1
    lives = [one.live for one in world.controller.services.values() if one.live.enabled]
    found["live " + ("split" if world.setting.split else "both")] += any(one.counts.passes for one in lives)
    found["activations"] += sum(isinstance(one, Send) and one.what == "activations" for one in world.actions)
    return found
