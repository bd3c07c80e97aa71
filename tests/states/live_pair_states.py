"""A live pair: what its target may do with the layers that it has."""

TITLE = "Live pair"
WHERE = "serving/live/pairs.py"
STATES = ("loading", "whole", "stopped")
EVENTS = (
    "more layers came", "all layers came", "load stopped", "target is idle, queue has requests",
    "last batch is over",
)  # fmt: skip
CELLS = {
    ("loading", "more layers came"): "loading",
    ("loading", "all layers came"): "whole",
    ("loading", "load stopped"): "stopped",
    ("loading", "target is idle, queue has requests"): "begins a batch",
    ("loading", "last batch is over"): "loading",
    ("whole", "more layers came"): "refused",
    ("whole", "all layers came"): "whole",
    ("whole", "load stopped"): "-",
    ("whole", "target is idle, queue has requests"): "begins none",
    ("whole", "last batch is over"): "ended",
    ("stopped", "more layers came"): "-",
    ("stopped", "all layers came"): "-",
    ("stopped", "load stopped"): "-",
    ("stopped", "target is idle, queue has requests"): "begins none",
    ("stopped", "last batch is over"): "ended",
}
