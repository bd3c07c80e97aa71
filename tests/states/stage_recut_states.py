"""Another cut of a language model in stages: whether one comes, and what becomes of it."""

TITLE = "Cut of a language model that comes"
WHERE = "serving/elastic/stage_recut.py"
STATES = ("none", "coming", "a stage there")
EVENTS = (
    "asked for", "asked for, a part does not fit", "asked for, a request is too long",
    "asked for, too few GPUs are free", "a new replica has loaded", "a load ends, its stage has another",
    "a load ends, its stage has no other", "a new replica is lost", "a replica of now is lost",
)  # fmt: skip
_GIVEN_UP = "none: given up, its replicas go"
_REFUSED = dict.fromkeys(EVENTS[:4], ": refused")
_PLAYED = {
    "none": {
        "asked for": "coming: its replicas load",
        "asked for, a part does not fit": "none: refused",
        "asked for, a request is too long": "none: refused",
        "asked for, too few GPUs are free": _GIVEN_UP,
        "a new replica has loaded": "-",
        "a load ends, its stage has another": "-",
        "a load ends, its stage has no other": "-",
        "a new replica is lost": "-",
        "a replica of now is lost": "none",
    },
    "coming": {
        **{event: f"coming{told}" for event, told in _REFUSED.items()},
        "a new replica has loaded": "a stage there",
        "a load ends, its stage has another": "coming",
        "a load ends, its stage has no other": _GIVEN_UP,
        "a new replica is lost": _GIVEN_UP,
        "a replica of now is lost": "coming",
    },
    "a stage there": {
        **{event: f"a stage there{told}" for event, told in _REFUSED.items()},
        "a new replica has loaded": "none: made, replicas of the old cut go",
        "a load ends, its stage has another": "a stage there",
        "a load ends, its stage has no other": _GIVEN_UP,
        "a new replica is lost": _GIVEN_UP,
        "a replica of now is lost": "a stage there",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
