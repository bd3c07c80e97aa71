"""A replica of a language model's stage that already runs the layers it has while it loads the others."""

TITLE = "Loading replica of a language model's stage"
WHERE = "serving/services/language/path_live.py"
STATES = ("none", "no layers", "some layers", "some layers, with a batch")
EVENTS = (
    "load starts", "a layer has loaded", "the last layer has loaded", "load stopped", "replica lost",
    "request arrives",
)  # fmt: skip
_PLAYED = {
    "none": {
        "load starts": "no layers",
        "a layer has loaded": "refused",
        "the last layer has loaded": "refused",
        "load stopped": "refused",
        "replica lost": "-",
        "request arrives": "none: the request waits",
    },
    "no layers": {
        "load starts": "-",
        "a layer has loaded": "some layers",
        "the last layer has loaded": "serves",
        "load stopped": "gone",
        "replica lost": "gone",
        "request arrives": "no layers: the request waits",
    },
    "some layers": {
        "load starts": "-",
        "a layer has loaded": "some layers",
        "the last layer has loaded": "serves",
        "load stopped": "gone",
        "replica lost": "gone",
        "request arrives": "some layers, with a batch: the request starts there",
    },
    "some layers, with a batch": {
        "load starts": "-",
        "a layer has loaded": "some layers, with a batch: its batch should run more layers there",
        "the last layer has loaded": "serves: its batch should run all layers there",
        "load stopped": "drains: its batch should leave it",
        "replica lost": "gone: its requests fail",
        "request arrives": "some layers, with a batch: the request waits",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
