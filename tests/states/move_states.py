"""A move of KV blocks: its phase after the event, and the actions that it causes."""

TITLE = "Move of KV"
WHERE = "serving/kv/moves.py"
STATES = ("reserved", "sending", "committed", "aborted")
EVENTS = (
    "send", "a transfer ended", "the last transfer ended", "a transfer was stopped", "commit", "abort",
)  # fmt: skip
CELLS = {
    ("reserved", "send"): "sending, with Send for each source",
    ("reserved", "a transfer ended"): "-",
    ("reserved", "the last transfer ended"): "-",
    ("reserved", "a transfer was stopped"): "-",
    ("reserved", "commit"): "committed",
    ("reserved", "abort"): "aborted",
    ("sending", "send"): "refused",
    ("sending", "a transfer ended"): "sending",
    ("sending", "the last transfer ended"): "reserved",
    ("sending", "a transfer was stopped"): "aborted, with StopSend for open transfers",
    ("sending", "commit"): "refused",
    ("sending", "abort"): "aborted, with StopSend for open transfers",
    ("committed", "send"): "refused",
    ("committed", "a transfer ended"): "-",
    ("committed", "the last transfer ended"): "-",
    ("committed", "a transfer was stopped"): "-",
    ("committed", "commit"): "refused",
    ("committed", "abort"): "refused",
    ("aborted", "send"): "refused",
    ("aborted", "a transfer ended"): "ignored",
    ("aborted", "the last transfer ended"): "ignored",
    ("aborted", "a transfer was stopped"): "ignored",
    ("aborted", "commit"): "refused",
    ("aborted", "abort"): "refused",
}
