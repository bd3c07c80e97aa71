"""Takes the metrics of models at every scrape, and keeps them until they reach the scaler.

Levels (queues, batches, KV memory) are those of the scrape's instant (``serving.elastic.gauges``). While
nothing happens to a model no scrape is taken: its queues are empty then, and missing scrapes count as empty.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serving.elastic.gauges import Gauges, gauges_of
from serving.elastic.instances import Instance, Instances
from serving.engine.engine import Engine
from serving.protocols.scaling import ScaleEvent
from serving.protocols.signals import InstanceSignals, RoleMeans, Signals, StartingSignals
from serving.services.service import Service
from serving.vocabulary.replica import Role
from serving.vocabulary.request import Request
from serving.vocabulary.step_counts import StepCounts
from serving.vocabulary.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRules:
    """When metrics are taken: every ``scrape_ns``; they reach the scaler ``delay_ns`` later.

    ``window_ns``: the time before a scrape over which rates and means are taken. ``tick_ns``: the period of
    the load monitor, which divides ``scrape_ns``; a real clock's tick is late, by less than that.
    """

    scrape_ns: int
    window_ns: int
    delay_ns: int
    tick_ns: int

    def __post_init__(self) -> None:
        assert 0 < self.scrape_ns <= self.window_ns and self.delay_ns >= 0
        assert self.scrape_ns % self.tick_ns == 0


class LoadTimes:
    """How long loads of each model took, from decision to readiness; reads the log of scaling as it grows."""

    __slots__ = ("_begun_ns", "_events", "_mean", "_read", "ready_ns")

    def __init__(self, events: Sequence[ScaleEvent]) -> None:
        """``events``: the growing list of ``ScaleLog``."""
        self._events, self._read = events, 0
        self._begun_ns: dict[int, int] = {}  # by replica that loads
        self._mean: dict[str, tuple[int, int]] = {}  # model -> number of loads, ns of all
        self.ready_ns: dict[int, int] = {}  # by replica: when it began to serve last

    def read(self) -> None:
        """Read what has been logged since the last call."""
        while self._read < len(self._events):
            event = self._events[self._read]
            self._read += 1
            if event.act == "load":
                self._begun_ns[event.replica] = event.now_ns
            elif event.act == "revive":
                self.ready_ns[event.replica] = event.now_ns
            elif event.act == "ready":
                self.ready_ns[event.replica] = event.now_ns
                begun_ns = self._begun_ns.pop(event.replica, event.now_ns)
                count, total_ns = self._mean.get(event.model, (0, 0))
                self._mean[event.model] = count + 1, total_ns + event.now_ns - begun_ns

    def starting(self, instance: Instance, now_ns: int) -> StartingSignals:
        """What is known of an instance that loads."""
        number, count_ns = instance.replica.id, self._mean.get(instance.replica.model)
        since_ns = self._begun_ns.get(number, now_ns)
        left_s = None
        if count_ns is not None:
            left_s = max(0, since_ns + count_ns[1] // count_ns[0] - now_ns) / NS_PER_S
        return StartingSignals(number, instance.role, since_ns, left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """All serving instances of a role at one scrape."""

    instances: int = 0
    waiting: int = 0
    running: int = 0
    used_blocks: int = 0
    blocks: int = 0
    prompt_tokens: int = 0


_NONE: Final = _Level()


class ModelSignals:
    """The scrapes of one model."""

    __slots__ = (
        "_arrivals", "_counts", "_due_ns", "_gauges", "_instances", "_levels", "_loads", "_model", "_roles",
        "_rules", "_service", "_taken",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        roles: Sequence[Role],
        rules: SignalRules,
        *,
        instances: Instances,
        gauges: Gauges,
        service: Service,
        counts: StepCounts,
        loads: LoadTimes,
    ) -> None:
        self._model, self._roles, self._rules = model, tuple(roles), rules
        self._instances, self._gauges, self._service = instances, gauges, service
        self._counts, self._loads = counts, loads
        self._arrivals = deque[tuple[int, int]]()  # time, prompt tokens
        # Of the scrapes of one window, with the time at which each was due.
        self._levels = deque[tuple[int, dict[Role, _Level]]]()
        self._taken = deque[Signals]()  # those that have not reached the scaler, and the last that has
        self._due_ns = 0  # when the last one was due

    def arrived(self, now_ns: int, request: Request) -> None:
        """A request was admitted."""
        self._arrivals.append((now_ns, request.prompt_tokens))

    def of(self, now_ns: int) -> Signals | None:
        """The newest that have reached the scaler; None before the first."""
        taken, delay_ns = self._taken, self._rules.delay_ns
        while len(taken) > 1 and taken[1].scraped_ns + delay_ns <= now_ns:
            taken.popleft()
        return taken[0] if taken and taken[0].scraped_ns + delay_ns <= now_ns else None

    def scrape(self, now_ns: int) -> None:
        """Take the metrics at the tick at which a scrape is due: at a multiple of its period."""
        due_ns = now_ns - now_ns % self._rules.scrape_ns
        if due_ns == self._due_ns or now_ns - due_ns >= self._rules.tick_ns:
            return
        self._loads.read()
        shown = self._shown(now_ns)
        self._keep(due_ns, self._level(shown))
        begin_ns = max(0, now_ns - self._rules.window_ns)
        while self._arrivals and self._arrivals[0][0] < begin_ns:
            self._arrivals.popleft()
        before = [tokens for at_ns, tokens in self._arrivals if at_ns < now_ns]
        self._taken.append(
            Signals(
                now_ns,
                now_ns - begin_ns,
                requests=len(before),
                prompt_tokens=sum(before),
                queued=self._service.queued,
                oldest_wait_s=self._oldest_wait_s(now_ns),
                prefix_hit_share=self._prefix_hit_share(),
                instances=shown,
                starting=self._starting(now_ns),
                means=tuple([self._mean(role) for role in self._roles]),
                measured=self._counts.measured(self._model, begin_ns, now_ns),
                queued_tokens=self._queued_tokens(shown),
            )
        )

    def _shown(self, now_ns: int) -> tuple[InstanceSignals, ...]:
        """The instances that take requests."""
        return tuple(
            [
                self._instance(instance, now_ns)
                for instance in self._instances.of(self._model)
                if instance.state == "serving"
            ]
        )

    def _instance(self, instance: Instance, now_ns: int) -> InstanceSignals:
        number, load = instance.replica.id, self._gauges.load(instance.replica, now_ns)
        return InstanceSignals(
            number,
            instance.role,
            waiting=load.waiting,
            running=load.running,
            kv_use=load.kv_use,
            prompt_tokens=load.prompt_tokens,
            ready_ns=self._loads.ready_ns.get(number, 0),
            in_flight_tokens=load.in_flight_tokens,
        )

    def _level(self, shown: Sequence[InstanceSignals]) -> dict[Role, _Level]:
        levels = {}
        for role in self._roles:
            own = [instance for instance in shown if instance.role == role]
            queued = self._service.queued if role != "decode" else 0
            blocks = [self._instances.replica(instance.id).kv_blocks for instance in own]
            levels[role] = _Level(
                instances=len(own),
                waiting=sum([instance.waiting for instance in own]) + queued,
                running=sum([instance.running for instance in own]),
                used_blocks=round(sum([one.kv_use * size for one, size in zip(own, blocks, strict=True)])),
                blocks=sum(blocks),
                prompt_tokens=self._service.backlog_tokens if role != "decode" else 0,
            )
        return levels

    def _keep(self, due_ns: int, level: dict[Role, _Level]) -> None:
        """Keep a scrape; those between it and the last one that was taken are of idle instances."""
        levels, rules = self._levels, self._rules
        last_ns = max(self._due_ns, due_ns - rules.window_ns)
        idle = {role: _Level(instances=one.instances, blocks=one.blocks) for role, one in level.items()}
        for at_ns in range(last_ns + rules.scrape_ns, due_ns, rules.scrape_ns):
            levels.append((at_ns, idle))
        levels.append((due_ns, level))
        self._due_ns = due_ns
        while levels[0][0] <= due_ns - rules.window_ns:
            levels.popleft()

    def _mean(self, role: Role) -> RoleMeans:
        of_role = [level.get(role, _NONE) for _, level in self._levels]
        count, blocks = len(of_role), sum([level.blocks for level in of_role])
        return RoleMeans(
            role,
            instances=sum([level.instances for level in of_role]) / count,
            waiting=sum([level.waiting for level in of_role]) / count,
            running=sum([level.running for level in of_role]) / count,
            kv_use=sum([level.used_blocks for level in of_role]) / blocks if blocks else 0.0,
            prompt_tokens=sum([level.prompt_tokens for level in of_role]) / count,
        )

    def _starting(self, now_ns: int) -> tuple[StartingSignals, ...]:
        return tuple(
            [
                self._loads.starting(instance, now_ns)
                for instance in self._instances.of(self._model)
                if instance.state == "loading"
            ]
        )

    def _queued_tokens(self, shown: Sequence[InstanceSignals]) -> int:
        """Prompt tokens that no instance has: of the backlog, what instances do not compute."""
        return max(0, self._service.backlog_tokens - sum([instance.prompt_tokens for instance in shown]))

    def _oldest_wait_s(self, now_ns: int) -> float:
        gauges = self._gauges
        heads = [gauges.first_arrival_ns(one.replica.id) for one in self._instances.of(self._model)]
        heads.append(gauges.queue_head_ns())
        return max(0, now_ns - min([head for head in heads if head is not None], default=now_ns)) / NS_PER_S

    def _prefix_hit_share(self) -> float:
        queried = found = 0
        for instance in self._instances.of(self._model):
            looked_up, hits = self._gauges.prefix_tokens(instance.replica.id)
            queried, found = queried + looked_up, found + hits
        return found / queried if queried else 0.0


def signals_of(
    rules: SignalRules,
    roles: Mapping[str, Sequence[Role]],
    *,
    instances: Instances,
    engines: Mapping[int, Engine],
    services: Mapping[str, Service],
    counts: StepCounts,
    events: Sequence[ScaleEvent],
) -> dict[str, ModelSignals]:
    """What monitoring knows of each model. ``roles``: those of each model; ``events``: see ``LoadTimes``."""
    counts.read = counts.measures = True
    loads = LoadTimes(events)
    return {
        model: ModelSignals(
            model,
            own,
            rules,
            instances=instances,
            gauges=gauges_of(services[model], engines, counts),
            service=services[model],
            counts=counts,
            loads=loads,
        )
        for model, own in roles.items()
    }
