"""A request whose first layers ran on a loading instance; every instance prefills and decodes."""

TITLE = "Request of a live batch, where instances prefill and decode"
WHERE = "serving/live/first_layers.py"
STATES = ("last layers running", "KV of the first layers in transfer", "decodes")
EVENTS = (
    "last layers ended", "transfer ended", "transfer was stopped", "source of first layers lost",
    "instance of last layers lost",
)  # fmt: skip
CELLS = {
    ("last layers running", "last layers ended"): "KV of the first layers in transfer",
    ("last layers running", "transfer ended"): "-",
    ("last layers running", "transfer was stopped"): "-",
    ("last layers running", "source of first layers lost"): "fails",
    ("last layers running", "instance of last layers lost"): "the target continues it",
    ("KV of the first layers in transfer", "last layers ended"): "refused",
    ("KV of the first layers in transfer", "transfer ended"): "decodes",
    ("KV of the first layers in transfer", "transfer was stopped"): "sent again",
    ("KV of the first layers in transfer", "source of first layers lost"): (
        "fails, its transfers are stopped"
    ),
    ("KV of the first layers in transfer", "instance of last layers lost"): (
        "fails, its transfers are stopped"
    ),
    ("decodes", "last layers ended"): "refused",
    ("decodes", "transfer ended"): "refused",
    ("decodes", "transfer was stopped"): "refused",
    ("decodes", "source of first layers lost"): "decodes",
    ("decodes", "instance of last layers lost"): "fails",
}
