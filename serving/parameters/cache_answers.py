"""Calls a cache policy and checks its answers against the existing hosts."""

from collections.abc import Container, Sequence
from typing import Any, Final

from serving.parameters.copies import Copies
from serving.parameters.host_cache import HostCaches
from serving.parameters.parameter_pool import Reload
from serving.parameters.usage import Usage
from serving.protocols.policy_faults import Question, ask, read, refused, wrong_reason
from serving.vocabulary.actions import Load
from serving.vocabulary.layers import Part

_RELOADS: Final = "a list of Reload, each to an existing host, of a hosted part of a model, with a reason"
HOSTS: Final = Question("hosts", "a list of existing hosts, ascending, each once")
MAY_RELEASE: Final = Question("may_release", "True or False")
BEFORE_RELEASE: Final = Question("before_release", f"None, or one of {_RELOADS}")
END: Final = Question("end", _RELOADS)
LOST: Final = Question("lost", _RELOADS)
LOST_HOST: Final = Question("lost_host", _RELOADS)
START: Final = Question("start", "nothing")
BEGIN: Final = Question("begin", "nothing")
DEPLOYED: Final = Question("deployed", "nothing")
LEFT: Final = Question("left", "nothing")
SETTLE: Final = Question("settle", "nothing")
CACHES: Final = Question("caches", "its HostCaches", is_attribute=True)
USAGE: Final = Question("usage", "its Usage", is_attribute=True)


class CheckedCopies:
    """``Copies`` with checked answers: a wrong answer raises PolicyError."""

    __slots__ = ("_copies", "_hosts", "_parts")

    def __init__(self, copies: Copies, hosts: int, parts: Container[Part]) -> None:
        self._copies, self._hosts, self._parts = copies, hosts, parts

    @property
    def caches(self) -> HostCaches:
        """The caches with the copies."""
        caches: HostCaches = read(self._copies, CACHES)
        return caches

    @property
    def usage(self) -> Usage:
        """Bytes in host memory, all hosts together."""
        usage: Usage = read(self._copies, USAGE)
        return usage

    def start(self, placed: Sequence[tuple[Part, int, int]]) -> None:
        """Record where the parameters are at time 0: each of ``placed`` is (part, replica, its host)."""
        ask(self._copies, START, placed)

    def hosts(self, part: Part, now_ns: int) -> list[int]:
        """The hosts whose memory has a whole copy of the part, ascending."""
        hosts: Any = ask(self._copies, HOSTS, part, now_ns)
        if type(hosts) is not list or any(type(host) is not int for host in hosts):
            raise refused(self._copies, HOSTS, hosts, "the answer is not a list of hosts")
        if hosts != sorted(set(hosts)) or (hosts and not 0 <= hosts[0] <= hosts[-1] < self._hosts):
            raise refused(self._copies, HOSTS, hosts, f"the hosts are 0 to {self._hosts - 1}, in this order")
        return hosts

    def begin(self, load: Load, hosts: Sequence[int], now_ns: int) -> None:
        """Record that a load begins; ``hosts``: the hosts of its targets."""
        ask(self._copies, BEGIN, load, hosts, now_ns)

    def end(self, load: Load, hosts: Sequence[int], fully_loaded: bool, now_ns: int) -> list[Reload]:
        """Record that a load has ended at all targets; returns the copies that must be loaded again."""
        return self._checked_reloads(END, ask(self._copies, END, load, hosts, fully_loaded, now_ns))

    def deployed(self, part: Part, replica: int, host: int, now_ns: int) -> None:
        """Record that a replica has all its parameters."""
        ask(self._copies, DEPLOYED, part, replica, host, now_ns)

    def before_release(self, part: Part, replica: int, now_ns: int) -> Reload | None:
        """The copy that a host must load before the replica may release its parameters; None: no copy."""
        reload: Any = ask(self._copies, BEFORE_RELEASE, part, replica, now_ns)
        if reload is not None:
            self._check(BEFORE_RELEASE, reload)
        return reload  # type: ignore[no-any-return]

    def may_release(self, part: Part, replica: int) -> bool:
        """Whether the replica may release its parameters now."""
        allowed: Any = ask(self._copies, MAY_RELEASE, part, replica)
        if type(allowed) is not bool:
            raise refused(self._copies, MAY_RELEASE, allowed, f"the answer is a {type(allowed).__name__}")
        return allowed

    def left(self, part: Part, replica: int, now_ns: int) -> None:
        """Record that the replica has released its parameters."""
        ask(self._copies, LEFT, part, replica, now_ns)

    def lost(self, part: Part, replica: int, now_ns: int) -> list[Reload]:
        """Record that a replica is lost; returns the copies that must be loaded again."""
        return self._checked_reloads(LOST, ask(self._copies, LOST, part, replica, now_ns))

    def lost_host(self, host: int, now_ns: int) -> list[Reload]:
        """Record that a host is lost; returns the copies that must be loaded again."""
        return self._checked_reloads(LOST_HOST, ask(self._copies, LOST_HOST, host, now_ns))

    def settle(self, now_ns: int) -> None:
        """Stop counting copies that have expired by now."""
        ask(self._copies, SETTLE, now_ns)

    def _checked_reloads(self, question: Question, reloads: Any) -> list[Reload]:
        if type(reloads) is not list:
            raise refused(self._copies, question, reloads, f"the answer is a {type(reloads).__name__}")
        for reload in reloads:
            self._check(question, reload)
        return reloads

    def _check(self, question: Question, reload: Any) -> None:
        if type(reload) is not Reload:
            raise refused(self._copies, question, reload, f"the entry is a {type(reload).__name__}")
        if type(reload.domain) is not int or not 0 <= reload.domain < self._hosts:
            raise refused(self._copies, question, reload, f"the hosts are 0 to {self._hosts - 1}")
        if reload.part not in self._parts:
            raise refused(self._copies, question, reload, "its part of a model is not hosted")
        if type(reload.reason) is not str or not reload.reason:
            raise refused(self._copies, question, reload, wrong_reason(reload.reason))
