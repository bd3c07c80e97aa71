"""A request that a prefill instance hands over to a decode instance; no third instance has room for it."""

TITLE = "Request that is handed over"
WHERE = "serving/kv/handover.py"
STATES = (
    "waits at the source",
    "in transfer",
    "in transfer, split",
    "in transfer beside a split request",
    "stays, its pieces in transfer",
    "at the target",
)
EVENTS = (
    "a transfer ended", "the last transfer ended", "a transfer was stopped", "source lost", "target lost",
    "replica of a piece lost",
)  # fmt: skip
_SENT_AGAIN = "in transfer again"
_STOPPED = ", its transfers are stopped"
CELLS = {
    ("waits at the source", "a transfer ended"): "-",
    ("waits at the source", "the last transfer ended"): "-",
    ("waits at the source", "a transfer was stopped"): "-",
    ("waits at the source", "source lost"): "fails",
    ("waits at the source", "target lost"): "waits at the source",
    ("waits at the source", "replica of a piece lost"): "fails",
    ("in transfer", "a transfer ended"): "-",
    ("in transfer", "the last transfer ended"): "decodes at the target",
    ("in transfer", "a transfer was stopped"): _SENT_AGAIN,
    ("in transfer", "source lost"): "fails" + _STOPPED,
    ("in transfer", "target lost"): "waits at the source" + _STOPPED,
    ("in transfer", "replica of a piece lost"): "in transfer",
    ("in transfer, split", "a transfer ended"): "in transfer",
    ("in transfer, split", "the last transfer ended"): "decodes at the target",
    ("in transfer, split", "a transfer was stopped"): _SENT_AGAIN + _STOPPED,
    ("in transfer, split", "source lost"): "fails" + _STOPPED,
    ("in transfer, split", "target lost"): "waits at the source" + _STOPPED,
    ("in transfer, split", "replica of a piece lost"): "fails" + _STOPPED,
    ("in transfer beside a split request", "a transfer ended"): "in transfer",
    ("in transfer beside a split request", "the last transfer ended"): "decodes at the target",
    ("in transfer beside a split request", "a transfer was stopped"): _SENT_AGAIN + _STOPPED,
    ("in transfer beside a split request", "source lost"): "fails" + _STOPPED,
    ("in transfer beside a split request", "target lost"): "waits at the source" + _STOPPED,
    ("in transfer beside a split request", "replica of a piece lost"): _SENT_AGAIN + _STOPPED,
    ("stays, its pieces in transfer", "a transfer ended"): "-",
    ("stays, its pieces in transfer", "the last transfer ended"): "decodes at the target",
    ("stays, its pieces in transfer", "a transfer was stopped"): _SENT_AGAIN,
    ("stays, its pieces in transfer", "source lost"): "fails" + _STOPPED,
    ("stays, its pieces in transfer", "target lost"): "fails" + _STOPPED,
    ("stays, its pieces in transfer", "replica of a piece lost"): "fails" + _STOPPED,
    ("at the target", "a transfer ended"): "refused",
    ("at the target", "the last transfer ended"): "refused",
    ("at the target", "a transfer was stopped"): "refused",
    ("at the target", "source lost"): "decodes at the target",
    ("at the target", "target lost"): "fails",
    ("at the target", "replica of a piece lost"): "decodes at the target",
}
