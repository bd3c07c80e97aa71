"""A live pair: whether its target, which serves while it loads, may start batches."""

TITLE = "Live pair"
WHERE = "serving/live/pairs.py"
STATES = ("loading", "whole", "stopped")
EVENTS = (
    "more layers loaded", "all layers loaded", "load stopped", "target is idle, queue has requests",
    "last batch finished",
)  # fmt: skip
CELLS = {
    ("loading", "more layers loaded"): "loading",
    ("loading", "all layers loaded"): "whole",
    ("loading", "load stopped"): "stopped",
    ("loading", "target is idle, queue has requests"): "starts a batch",
    ("loading", "last batch finished"): "loading",
    ("whole", "more layers loaded"): "refused",
    ("whole", "all layers loaded"): "whole",
    ("whole", "load stopped"): "-",
    ("whole", "target is idle, queue has requests"): "starts no batch",
    ("whole", "last batch finished"): "ended",
    ("stopped", "more layers loaded"): "-",
    ("stopped", "all layers loaded"): "-",
    ("stopped", "load stopped"): "-",
    ("stopped", "target is idle, queue has requests"): "starts no batch",
    ("stopped", "last batch finished"): "ended",
}
