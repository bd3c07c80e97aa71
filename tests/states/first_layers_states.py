"""What becomes of a request whose first layers ran on an instance that loads, where instances do both."""

TITLE = "Request of a live batch, where instances prefill and decode"
WHERE = "serving/live/first_layers.py"
STATES = ("its last layers run", "its first layers' KV is on its way", "decodes")
EVENTS = (
    "the last layers ran", "the transfer ended", "the world stopped the transfer",
    "source of the first layers lost", "instance of the last layers lost",
)  # fmt: skip
CELLS = {
    ("its last layers run", "the last layers ran"): "its first layers' KV is on its way",
    ("its last layers run", "the transfer ended"): "-",
    ("its last layers run", "the world stopped the transfer"): "-",
    ("its last layers run", "source of the first layers lost"): "fails",
    ("its last layers run", "instance of the last layers lost"): "its target goes on with it",
    ("its first layers' KV is on its way", "the last layers ran"): "refused",
    ("its first layers' KV is on its way", "the transfer ended"): "decodes",
    ("its first layers' KV is on its way", "the world stopped the transfer"): "sent again",
    ("its first layers' KV is on its way", "source of the first layers lost"): (
        "fails, what is on the wire is stopped"
    ),
    ("its first layers' KV is on its way", "instance of the last layers lost"): (
        "fails, what is on the wire is stopped"
    ),
    ("decodes", "the last layers ran"): "refused",
    ("decodes", "the transfer ended"): "refused",
    ("decodes", "the world stopped the transfer"): "refused",
    ("decodes", "source of the first layers lost"): "decodes",
    ("decodes", "instance of the last layers lost"): "fails",
}
