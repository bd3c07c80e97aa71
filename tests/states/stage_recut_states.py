"""A new cut of a language model into stages: from the request until it is made or given up."""

TITLE = "New cut of a language model"
WHERE = "serving/elastic/stage_recut.py"
STATES = ("none", "coming", "a stage loaded")
EVENTS = (
    "cut requested", "cut requested, a part does not fit", "cut requested, a request is too long",
    "cut requested, too few GPUs are free", "a new replica has loaded",
    "a load stops, its stage has another replica", "a load stops, its stage has no other replica",
    "a new replica is lost", "a present replica is lost",
)  # fmt: skip
_GIVEN_UP = "none: given up, its replicas leave"
_REFUSED = dict.fromkeys(EVENTS[:4], ": refused")
_PLAYED = {
    "none": {
        "cut requested": "coming: its replicas load",
        "cut requested, a part does not fit": "none: refused",
        "cut requested, a request is too long": "none: refused",
        "cut requested, too few GPUs are free": _GIVEN_UP,
        "a new replica has loaded": "-",
        "a load stops, its stage has another replica": "-",
        "a load stops, its stage has no other replica": "-",
        "a new replica is lost": "-",
        "a present replica is lost": "none",
    },
    "coming": {
        **{event: f"coming{told}" for event, told in _REFUSED.items()},
        "a new replica has loaded": "a stage loaded",
        "a load stops, its stage has another replica": "coming",
        "a load stops, its stage has no other replica": _GIVEN_UP,
        "a new replica is lost": _GIVEN_UP,
        "a present replica is lost": "coming",
    },
    "a stage loaded": {
        **{event: f"a stage loaded{told}" for event, told in _REFUSED.items()},
        "a new replica has loaded": "none: made, replicas of the old cut leave",
        "a load stops, its stage has another replica": "a stage loaded",
        "a load stops, its stage has no other replica": _GIVEN_UP,
        "a new replica is lost": _GIVEN_UP,
        "a present replica is lost": "a stage loaded",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
