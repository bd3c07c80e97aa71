"""A load at one of its targets; it is forgotten when no target of it is under way."""

TITLE = "Load at one target"
WHERE = "serving/parameters/loads.py"
STATES = ("under way", "there", "stopped")
EVENTS = ("more layers came", "all layers came", "load stopped")
CELLS = {
    ("under way", "more layers came"): "under way",
    ("under way", "all layers came"): "there",
    ("under way", "load stopped"): "stopped",
    ("there", "more layers came"): "refused",
    ("there", "all layers came"): "refused",
    ("there", "load stopped"): "refused",
    ("stopped", "more layers came"): "refused",
    ("stopped", "all layers came"): "refused",
    ("stopped", "load stopped"): "refused",
}
