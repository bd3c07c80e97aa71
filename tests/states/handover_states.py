"""What becomes of a request that is handed over; no other instance has room for it."""

TITLE = "Request that is handed over"
WHERE = "serving/kv/handover.py"
STATES = (
    "waits at its source",
    "on its way",
    "on its way, split",
    "on its way beside a split one",
    "stays, its pieces on their way",
    "at its target",
)
EVENTS = (
    "a transfer ended", "the last transfer ended", "the world stopped a transfer", "source lost",
    "target lost", "replica of a piece lost",
)  # fmt: skip
_SENT_AGAIN = "on its way again"
_STOPPED = ", what is on the wire is stopped"
CELLS = {
    ("waits at its source", "a transfer ended"): "-",
    ("waits at its source", "the last transfer ended"): "-",
    ("waits at its source", "the world stopped a transfer"): "-",
    ("waits at its source", "source lost"): "fails",
    ("waits at its source", "target lost"): "waits at its source",
    ("waits at its source", "replica of a piece lost"): "fails",
    ("on its way", "a transfer ended"): "-",
    ("on its way", "the last transfer ended"): "decodes at its target",
    ("on its way", "the world stopped a transfer"): _SENT_AGAIN,
    ("on its way", "source lost"): "fails" + _STOPPED,
    ("on its way", "target lost"): "waits at its source" + _STOPPED,
    ("on its way", "replica of a piece lost"): "on its way",
    ("on its way, split", "a transfer ended"): "on its way",
    ("on its way, split", "the last transfer ended"): "decodes at its target",
    ("on its way, split", "the world stopped a transfer"): _SENT_AGAIN + _STOPPED,
    ("on its way, split", "source lost"): "fails" + _STOPPED,
    ("on its way, split", "target lost"): "waits at its source" + _STOPPED,
    ("on its way, split", "replica of a piece lost"): "fails" + _STOPPED,
    ("on its way beside a split one", "a transfer ended"): "on its way",
    ("on its way beside a split one", "the last transfer ended"): "decodes at its target",
    ("on its way beside a split one", "the world stopped a transfer"): _SENT_AGAIN + _STOPPED,
    ("on its way beside a split one", "source lost"): "fails" + _STOPPED,
    ("on its way beside a split one", "target lost"): "waits at its source" + _STOPPED,
    ("on its way beside a split one", "replica of a piece lost"): _SENT_AGAIN + _STOPPED,
    ("stays, its pieces on their way", "a transfer ended"): "-",
    ("stays, its pieces on their way", "the last transfer ended"): "decodes at its target",
    ("stays, its pieces on their way", "the world stopped a transfer"): _SENT_AGAIN,
    ("stays, its pieces on their way", "source lost"): "fails" + _STOPPED,
    ("stays, its pieces on their way", "target lost"): "fails" + _STOPPED,
    ("stays, its pieces on their way", "replica of a piece lost"): "fails" + _STOPPED,
    ("at its target", "a transfer ended"): "refused",
    ("at its target", "the last transfer ended"): "refused",
    ("at its target", "the world stopped a transfer"): "refused",
    ("at its target", "source lost"): "decodes at its target",
    ("at its target", "target lost"): "fails",
    ("at its target", "replica of a piece lost"): "decodes at its target",
}
