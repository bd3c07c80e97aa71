"""An instance: a replica while GPUs are its own."""

TITLE = "Instance"
WHERE = "serving/elastic/instances.py"
STATES = ("none", "loading", "serving", "draining")
EVENTS = ("place", "loaded", "drain", "cancel drain", "turn", "free", "lost")
CELLS = {
    ("none", "place"): "loading",
    ("none", "loaded"): "refused",
    ("none", "drain"): "refused",
    ("none", "cancel drain"): "refused",
    ("none", "turn"): "refused",
    ("none", "free"): "refused",
    ("none", "lost"): "refused",
    ("loading", "place"): "refused",
    ("loading", "loaded"): "serving",
    ("loading", "drain"): "refused",
    ("loading", "cancel drain"): "refused",
    ("loading", "turn"): "refused",
    ("loading", "free"): "none, its GPUs are free",
    ("loading", "lost"): "none, its GPUs are gone",
    ("serving", "place"): "refused",
    ("serving", "loaded"): "refused",
    ("serving", "drain"): "draining",
    ("serving", "cancel drain"): "refused",
    ("serving", "turn"): "serving in another role",
    ("serving", "free"): "none, its GPUs are free",
    ("serving", "lost"): "none, its GPUs are gone",
    ("draining", "place"): "refused",
    ("draining", "loaded"): "refused",
    ("draining", "drain"): "refused",
    ("draining", "cancel drain"): "serving",
    ("draining", "turn"): "refused",
    ("draining", "free"): "none, its GPUs are free",
    ("draining", "lost"): "none, its GPUs are gone",
}
