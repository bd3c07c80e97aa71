"""Policies of a user's own, which say what they were asked: modules to be written into a user's folder."""

ELASTIC = '''
from collections import Counter

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import IlpFree
from policies.provisioning import NetworkProvisioner
from serving.protocols.scaling import ScaleDecision

ASKED = Counter()


class OwnScaler:
    """As many instances as may be, as soon as anybody waits; none is let go."""

    def scale(self, view):
        ASKED["scale"] += 1
        found, spare = [], view.spare
        for role in view.roles:
            more = min(role.maximum - role.supply, spare) if view.backlog_tokens else 0
            if more > 0:
                spare -= more
                reason = f"{view.backlog_tokens} tokens wait"
                found.append(ScaleDecision("load", view.model, role.role, more, (), reason))
        return tuple(found)


class OwnProvision:
    def __init__(self):
        self._usual = NetworkProvisioner()

    def provision(self, wanted):
        ASKED["provision"] += 1
        return self._usual.provision(wanted)


class OwnLive(LiveScaling):
    def __init__(self, ttft_slo_ms):
        super().__init__(IlpFree(), 0)

    def select(self, choice):
        ASKED["select"] += 1
        return super().select(choice)
'''

MOVING = '''
from collections import Counter

from policies.batching import ChunkedPrefill
from serving.protocols.migration import Pair

ASKED = Counter()


class OwnDispatch:
    """All to the first."""

    def dispatch(self, request, fleet):
        ASKED["dispatch"] += 1
        return fleet.replica_at(0), "the first"


class OwnBatcher:
    """As vLLM."""

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int):
        self._usual = ChunkedPrefill(max_num_seqs, max_num_batched_tokens)

    def choose(self, view):
        ASKED["batch"] += 1
        return self._usual.choose(view)


class OwnMigration:
    """From who has most to who has least, the one with the shortest context."""

    def pair(self, view):
        ASKED["pair"] += 1
        loads = sorted((view.load(one, "outstanding"), one) for one in view.taking if not view.engaged(one))
        if len(loads) < 2 or loads[-1][0] - loads[0][0] < 2:
            return []
        return [Pair(loads[-1][1], loads[0][1], f"{loads[-1][0]} to {loads[0][0]}")]

    def choose(self, view):
        ASKED["choose"] += 1
        found = [(view.context_tokens(one), one) for one in view.decoding()]
        return (min(found)[1], f"{min(found)[0]} tokens") if found else None
'''
