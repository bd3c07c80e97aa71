"""One end of a reliable connection: a queue pair, its completion queue, and the channel that wakes a waiter.

An error ends a queue pair. Posted work is flushed before the error is raised, so that nothing is written into
this memory afterwards. Then both ends renew the pair and join it again.
"""

import secrets
import select
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from realexec.transports.base import Segment, cut
from realexec.verbs.package import verbs

# The most reads posted at once, and the most bytes of each: several fill the wire, and each ends soon.
WINDOW: Final = 32
READ_BYTES: Final = 1 << 20
# A wait of 4.096 us x 2^14 = 67 ms, and six retries: a peer that does not answer is noticed within a second,
# or within two on adapters that wait up to four times as long. Seven would mean endless retries with rxe.
_TIMEOUT: Final = 14
_RETRIES: Final = 6
_MOST_READS: Final = 16  # reads that a peer carries out at once for this pair, if its device can
_FLUSH_S: Final = 2.0
# Work requests carry the generation of the pair, which `renew` raises: late completions have an older one.
_FOR_A_GREETING: Final = 0
_WORD: Final = 1
_OUR_FAULTS: Final = ("IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_INV_REQ_ERR", "IBV_WC_LOC_PROT_ERR")
# Held while an object with its own descriptor is made; see `_channel`.
DESCRIPTORS: Final = threading.Lock()


class PairRefused(Exception):
    """The peer's device, or this one, refuses this read."""


class Broken(Exception):
    """The peer does not answer; the pair is unusable until it is renewed."""


class Ended(Exception):
    """The wait was ended through the descriptor ``ended``."""


class Pair:
    """``device``: context, protection domain and registered memory (`realexec.verbs.helper`)."""

    def __init__(self, device: Any) -> None:
        v = verbs()
        self._device = device
        self._wake, self._wake_fd = _channel(device.context)
        self._cq = v.CQ(device.context, 4 * WINDOW, None, self._wake, 0)
        cap = v.QPCap(max_send_wr=2 * WINDOW, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        attributes = {
            "qp_type": v.e.IBV_QPT_RC,
            "scq": self._cq,
            "rcq": self._cq,
            "cap": cap,
            "sq_sig_all": 1,
        }
        self._qp = v.QP(device.domain, v.QPInitAttr(**attributes))
        self._posted = self._generation = 0
        self.renew()

    def told(self) -> dict[str, Any]:
        """Return what the other end needs for `join`, in JSON types."""
        device, port = self._device, self._device.port
        return {
            "number": self._qp.qp_num, "psn": self._psn, "gid": port.gid, "lid": port.lid, "mtu": port.mtu,
            "reads": device.most_reads,
        }  # fmt: skip

    def renew(self) -> dict[str, Any]:
        """Reset the pair from any state, as if it were new. Return what `told` returns."""
        v = verbs()
        self._flush()
        self._qp.modify(v.QPAttr(qp_state=v.e.IBV_QPS_RESET), v.e.IBV_QP_STATE)
        self._psn = secrets.randbits(24)
        self._generation += 1
        attributes = v.QPAttr(port_num=self._device.port.number)
        attributes.qp_access_flags = self._device.access
        self._qp.to_init(attributes)
        # A greeting has no bytes, but pyverbs requires an address for them.
        place = v.SGE(self._device.begins, 1, self._device.own_key)
        self._qp.post_recv(v.RecvWR(_FOR_A_GREETING, 1, [place]))
        return self.told()

    def join(self, peer: dict[str, Any]) -> None:
        """Connect to the end whose `told` returned ``peer``. Raises Broken."""
        try:
            self._join(peer)
        except verbs().PyverbsError as error:
            raise Broken(str(error)) from None

    def _join(self, peer: dict[str, Any]) -> None:
        v, port = verbs(), self._device.port
        attributes = v.QPAttr(port_num=port.number)
        attributes.qp_access_flags = self._device.access
        attributes.path_mtu = min(port.mtu, int(peer["mtu"]))
        attributes.dest_qp_num, attributes.rq_psn = int(peer["number"]), int(peer["psn"])
        reads = min(self._device.most_reads, int(peer["reads"]), _MOST_READS)
        attributes.max_dest_rd_atomic, attributes.min_rnr_timer = reads, 12
        route = v.GlobalRoute(dgid=v.GID(peer["gid"]), sgid_index=port.gid_index, hop_limit=64)
        attributes.ah_attr = v.AHAttr(port_num=port.number, is_global=1, gr=route, dlid=int(peer["lid"]))
        self._qp.to_rtr(attributes)
        attributes.sq_psn, attributes.timeout = self._psn, _TIMEOUT
        attributes.retry_cnt = attributes.rnr_retry = _RETRIES
        attributes.max_rd_atomic = reads
        self._qp.to_rts(attributes)

    def greet(self, ended: int) -> None:
        """Write no bytes, with an immediate, to the peer: success shows that the path carries packets."""
        v = verbs()
        opcode = v.e.IBV_WR_RDMA_WRITE_WITH_IMM
        nothing = v.SGE(self._device.begins, 0, self._device.own_key)
        hello = v.SendWR(self._generation, opcode=opcode, num_sge=1, imm_data=_WORD, sg=[nothing])
        hello.set_wr_rdma(0, 0)
        self._post(hello)
        self._all_done(ended)

    def read(self, segments: Sequence[Segment], begins: int, key: int, ended: int) -> None:
        """Read segments of the peer's memory, which begins at ``begins`` and is registered under ``key``.

        Raises Refused or Broken, or Ended once ``ended`` is readable: after that no more bytes arrive.
        """
        v, own = verbs(), self._device
        for remote, local, size in cut(segments, READ_BYTES):
            while self._posted >= WINDOW:
                self._take(ended)
            into = v.SGE(own.begins + local, size, own.own_key)
            work = v.SendWR(self._generation, opcode=v.e.IBV_WR_RDMA_READ, num_sge=1, sg=[into])
            work.set_wr_rdma(key, begins + remote)
            self._post(work)
        self._all_done(ended)

    def close(self) -> None:
        """Destroy the queues and the completion channel."""
        for part in (self._qp, self._cq, self._wake):
            part.close()

    def _post(self, work: Any) -> None:
        try:
            self._qp.post_send(work)
        except verbs().PyverbsRDMAError as error:
            self._flush()
            raise Broken(str(error)) from None
        self._posted += 1

    def _all_done(self, ended: int) -> None:
        while self._posted:
            self._take(ended)

    def _take(self, ended: int) -> None:
        """Sleep until there are completions; a failed one ends the pair."""
        v = verbs()
        for status in self._statuses(ended):
            if status != v.e.IBV_WC_SUCCESS:
                self._flush()
                name = _name_of(status)
                raise (PairRefused if name in _OUR_FAULTS else Broken)(name)

    def _statuses(self, ended: int) -> Iterator[int]:
        arrived = self._come()
        if not arrived:
            self._cq.req_notify()
            arrived = self._come()  # completions between the first poll and the request
        while not arrived:
            if ended < 0:
                self._flush()
                raise Ended
            watch = select.poll()
            for descriptor in (self._wake_fd, ended):
                watch.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in watch.poll()}
            if self._wake_fd in ready:
                self._wake.get_cq_event(self._cq)
                self._cq.ack_events(1)
                self._cq.req_notify()
            arrived = self._come()
            if not arrived and ended in ready:
                self._flush()
                raise Ended
        return iter(arrived)

    def _come(self) -> list[int]:
        """Return the status of completed work that this end posted, without greetings of the peer."""
        _, completions = self._cq.poll(WINDOW)
        own = [completion.status for completion in completions if completion.wr_id == self._generation]
        self._posted -= min(self._posted, len(own))
        return own

    def _flush(self) -> None:
        """Make the device drop all posted work."""
        v = verbs()
        if not self._posted:
            return
        self._qp.modify(v.QPAttr(qp_state=v.e.IBV_QPS_ERR), v.e.IBV_QP_STATE)
        deadline_s = time.monotonic() + _FLUSH_S
        while self._posted and time.monotonic() < deadline_s:
            if not self._come():
                time.sleep(0.0002)
        self._posted = 0


def _channel(context: Any) -> tuple[Any, int]:
    """Make a completion channel; return it and its descriptor, which pyverbs does not expose."""
    with DESCRIPTORS:
        before = _event_descriptors()
        channel = verbs().CompChannel(context)
        (descriptor,) = _event_descriptors() - before
    return channel, descriptor


def _event_descriptors() -> set[int]:
    gids = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            if "infinibandevent" in str(path.readlink()):
                gids.add(int(path.name))
        except OSError:
            continue  # the descriptor was closed in the meantime
    return gids


def _name_of(status: int) -> str:
    constants = verbs().e
    errors = (name for name in dir(constants) if name.startswith("IBV_WC_") and name.endswith("_ERR"))
    return next((name for name in errors if getattr(constants, name) == status), f"status {status}")
