"""A migration of a running request: its phase after the event, and whose the request and its KV are then."""

TITLE = "Migration of a running request"
WHERE = "serving/kv/migration.py"
STATES = (
    "paired", "preparing", "copying", "waiting", "last stage", "recomputing", "committed", "aborted",
)  # fmt: skip
EVENTS = (
    "both ends at a boundary, much left", "both ends at a boundary, little left", "the destination refuses",
    "one stage too many", "the stage has come", "the world stopped a transfer", "it finished",
    "it was preempted", "source lost", "destination lost", "destination leaves", "its KV is computed again",
    "the destination has loaded",
)  # fmt: skip
_DECODES = "aborted: it decodes at the source"
_ENDED = "aborted: it has ended"
_WAITS = "aborted: it waits at the source"
_FAILS = "aborted: it fails with the source"
_RESUMES = "aborted: it resumes at the source"
_STOPS = ", what is on the wire is stopped"
_OVER = dict.fromkeys(EVENTS, "-")
_PLAYED = {
    "paired": {
        "both ends at a boundary, much left": "copying: it decodes at the source",
        "both ends at a boundary, little left": "last stage: it is paused at the source",
        "the destination refuses": _DECODES,
        "one stage too many": "-",
        "the stage has come": "refused",
        "the world stopped a transfer": "refused",
        "it finished": "over: it has ended",
        "it was preempted": "paired: it waits at the source",
        "source lost": "over: it fails with the source",
        "destination lost": "over: it decodes at the source",
        "destination leaves": "over: it decodes at the source",
        "its KV is computed again": "-",
        "the destination has loaded": "paired: it decodes at the source",
    },
    "preparing": {
        "both ends at a boundary, much left": "copying: it decodes at the source",
        "both ends at a boundary, little left": "last stage: it is paused at the source",
        "the destination refuses": _DECODES,
        "one stage too many": _DECODES,
        "the stage has come": "refused",
        "the world stopped a transfer": "refused",
        "it finished": _ENDED,
        "it was preempted": _WAITS,
        "source lost": _FAILS,
        "destination lost": _DECODES,
        "destination leaves": _DECODES,
        "its KV is computed again": "-",
        "the destination has loaded": "preparing: it decodes at the source",
    },
    "copying": {
        "both ends at a boundary, much left": "copying: it decodes at the source",
        "both ends at a boundary, little left": "copying: it decodes at the source",
        "the destination refuses": "-",
        "one stage too many": "-",
        "the stage has come": "preparing: it decodes at the source",
        "the world stopped a transfer": _DECODES,
        "it finished": _ENDED + _STOPS,
        "it was preempted": _WAITS + _STOPS,
        "source lost": _FAILS + _STOPS,
        "destination lost": _DECODES + _STOPS,
        "destination leaves": _DECODES + _STOPS,
        "its KV is computed again": "-",
        "the destination has loaded": "copying: it decodes at the source",
    },
    "waiting": {
        "both ends at a boundary, much left": "waiting: it decodes at the source",
        "both ends at a boundary, little left": "waiting: it decodes at the source",
        "the destination refuses": "-",
        "one stage too many": "-",
        "the stage has come": "refused",
        "the world stopped a transfer": "refused",
        "it finished": _ENDED,
        "it was preempted": _WAITS,
        "source lost": _FAILS,
        "destination lost": _DECODES,
        "destination leaves": _DECODES,
        "its KV is computed again": "-",
        "the destination has loaded": "preparing: it decodes at the source",
    },
    "last stage": {
        "both ends at a boundary, much left": "last stage: it is paused at the source",
        "both ends at a boundary, little left": "last stage: it is paused at the source",
        "the destination refuses": "-",
        "one stage too many": "-",
        "the stage has come": "committed: it is the destination's",
        "the world stopped a transfer": _RESUMES,
        "it finished": "refused",
        "it was preempted": "refused",
        "source lost": _FAILS + _STOPS,
        "destination lost": _RESUMES + _STOPS,
        "destination leaves": _RESUMES + _STOPS,
        "its KV is computed again": "-",
        "the destination has loaded": "last stage: it is paused at the source",
    },
    "recomputing": {
        "both ends at a boundary, much left": "recomputing: it is the destination's",
        "both ends at a boundary, little left": "recomputing: it is the destination's",
        "the destination refuses": "-",
        "one stage too many": "-",
        "the stage has come": "refused",
        "the world stopped a transfer": "refused",
        "it finished": "committed: it has ended",
        "it was preempted": "recomputing: it is the destination's",
        "source lost": "recomputing: it is the destination's",
        "destination lost": "aborted: it fails with the destination",
        "destination leaves": "recomputing: it is the destination's",
        "its KV is computed again": "committed: it is the destination's",
        "the destination has loaded": "recomputing: it is the destination's",
    },
    "committed": {
        **_OVER,
        "the stage has come": "refused",
        "the world stopped a transfer": "refused",
    },
    "aborted": {
        **_OVER,
        "the stage has come": "ignored",
        "the world stopped a transfer": "ignored",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
