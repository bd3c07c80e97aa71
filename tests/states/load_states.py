"""A load at one of its targets; it is forgotten when it is under way at no target."""

TITLE = "Load at one target"
WHERE = "serving/parameters/loads.py"
STATES = ("under way", "there", "stopped")
EVENTS = ("more layers loaded", "all layers loaded", "load stopped")
CELLS = {
    ("under way", "more layers loaded"): "under way",
    ("under way", "all layers loaded"): "there",
    ("under way", "load stopped"): "stopped",
    ("there", "more layers loaded"): "refused",
    ("there", "all layers loaded"): "refused",
    ("there", "load stopped"): "refused",
    ("stopped", "more layers loaded"): "refused",
    ("stopped", "all layers loaded"): "refused",
    ("stopped", "load stopped"): "refused",
}
