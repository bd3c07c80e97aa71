"""A move of KV: its phase after the event, and the actions it answers with."""

TITLE = "Move of KV"
WHERE = "serving/kv/moves.py"
STATES = ("reserved", "sending", "committed", "aborted")
EVENTS = (
    "send", "a transfer ended", "the last transfer ended", "the world stopped a transfer", "commit", "abort",
)  # fmt: skip
CELLS = {
    ("reserved", "send"): "sending, with Send for each source",
    ("reserved", "a transfer ended"): "-",
    ("reserved", "the last transfer ended"): "-",
    ("reserved", "the world stopped a transfer"): "-",
    ("reserved", "commit"): "committed",
    ("reserved", "abort"): "aborted",
    ("sending", "send"): "refused",
    ("sending", "a transfer ended"): "sending",
    ("sending", "the last transfer ended"): "reserved",
    ("sending", "the world stopped a transfer"): "aborted, with StopSend for what is on the wire",
    ("sending", "commit"): "refused",
    ("sending", "abort"): "aborted, with StopSend for what is on the wire",
    ("committed", "send"): "refused",
    ("committed", "a transfer ended"): "-",
    ("committed", "the last transfer ended"): "-",
    ("committed", "the world stopped a transfer"): "-",
    ("committed", "commit"): "refused",
    ("committed", "abort"): "refused",
    ("aborted", "send"): "refused",
    ("aborted", "a transfer ended"): "ignored",
    ("aborted", "the last transfer ended"): "ignored",
    ("aborted", "the world stopped a transfer"): "ignored",
    ("aborted", "commit"): "refused",
    ("aborted", "abort"): "refused",
}
