"""The global scheduler: what it does at the event, or what is done without it, then its state."""

TITLE = "Global scheduler"
WHERE = "serving/controller.py"
STATES = ("working", "lost")
EVENTS = (
    "scheduler lost", "scheduler back", "request arrives", "migration round", "migration stage received",
    "look of the load monitor",
)  # fmt: skip
_PLAYED = {
    "working": {
        "scheduler lost": "lost",
        "scheduler back": "working",
        "request arrives": "dispatched by the policy: working",
        "migration round": "pairs instances: working",
        "migration stage received": "the migration continues: working",
        "look of the load monitor": "scales: working",
    },
    "lost": {
        "scheduler lost": "lost",
        "scheduler back": "working",
        "request arrives": "dispatched in turn: lost",
        "migration round": "-",
        "migration stage received": "the migration continues: lost",
        "look of the load monitor": "waits for the next look: lost",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
