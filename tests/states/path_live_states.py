"""A replica of a language model's stage that runs layers while it loads."""

TITLE = "Replica of a language model's stage that loads"
WHERE = "serving/services/path_live.py"
STATES = ("none", "no layers", "some layers", "some layers, passed")
EVENTS = (
    "its load begins", "a layer is there", "the last one is there", "its load ends early", "it is lost",
    "a request comes",
)  # fmt: skip
_PLAYED = {
    "none": {
        "its load begins": "no layers",
        "a layer is there": "refused",
        "the last one is there": "refused",
        "its load ends early": "refused",
        "it is lost": "-",
        "a request comes": "none: it waits",
    },
    "no layers": {
        "its load begins": "-",
        "a layer is there": "some layers",
        "the last one is there": "serves",
        "its load ends early": "gone",
        "it is lost": "gone",
        "a request comes": "no layers: it waits",
    },
    "some layers": {
        "its load begins": "-",
        "a layer is there": "some layers",
        "the last one is there": "serves",
        "its load ends early": "gone",
        "it is lost": "gone",
        "a request comes": "some layers, passed: it begins there",
    },
    "some layers, passed": {
        "its load begins": "-",
        "a layer is there": "some layers, passed: its batch is to run more there",
        "the last one is there": "serves: its batch is to run all there",
        "its load ends early": "drains: its batch is to leave it",
        "it is lost": "gone: who was there fails",
        "a request comes": "some layers, passed: it waits",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
