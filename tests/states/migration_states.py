"""A migration of a running request: its phase after the event, and where the request then is ("it")."""

TITLE = "Migration of a running request"
WHERE = "serving/kv/migration.py"
STATES = (
    "paired", "preparing", "copying", "waiting", "last stage", "recomputing", "committed", "aborted",
)  # fmt: skip
EVENTS = (
    "both ends at a step boundary, much KV left", "both ends at a step boundary, little KV left",
    "destination refuses", "stage limit exceeded", "stage received", "a transfer was stopped",
    "request finished", "request preempted", "source lost", "destination lost", "destination leaves",
    "KV recomputed", "destination loaded",
)  # fmt: skip
_DECODES = "aborted: it decodes at the source"
_ENDED = "aborted: it has finished"
_WAITS = "aborted: it waits at the source"
_FAILS = "aborted: it fails with the source"
_RESUMES = "aborted: it resumes at the source"
_STOPS = ", its transfers are stopped"
_OVER = dict.fromkeys(EVENTS, "-")
_PLAYED = {
    "paired": {
        "both ends at a step boundary, much KV left": "copying: it decodes at the source",
        "both ends at a step boundary, little KV left": "last stage: it is paused at the source",
        "destination refuses": _DECODES,
        "stage limit exceeded": "-",
        "stage received": "refused",
        "a transfer was stopped": "refused",
        "request finished": "over: it has finished",
        "request preempted": "paired: it waits at the source",
        "source lost": "over: it fails with the source",
        "destination lost": "over: it decodes at the source",
        "destination leaves": "over: it decodes at the source",
        "KV recomputed": "-",
        "destination loaded": "paired: it decodes at the source",
    },
    "preparing": {
        "both ends at a step boundary, much KV left": "copying: it decodes at the source",
        "both ends at a step boundary, little KV left": "last stage: it is paused at the source",
        "destination refuses": _DECODES,
        "stage limit exceeded": _DECODES,
        "stage received": "refused",
        "a transfer was stopped": "refused",
        "request finished": _ENDED,
        "request preempted": _WAITS,
        "source lost": _FAILS,
        "destination lost": _DECODES,
        "destination leaves": _DECODES,
        "KV recomputed": "-",
        "destination loaded": "preparing: it decodes at the source",
    },
    "copying": {
        "both ends at a step boundary, much KV left": "copying: it decodes at the source",
        "both ends at a step boundary, little KV left": "copying: it decodes at the source",
        "destination refuses": "-",
        "stage limit exceeded": "-",
        "stage received": "preparing: it decodes at the source",
        "a transfer was stopped": _DECODES,
        "request finished": _ENDED + _STOPS,
        "request preempted": _WAITS + _STOPS,
        "source lost": _FAILS + _STOPS,
        "destination lost": _DECODES + _STOPS,
        "destination leaves": _DECODES + _STOPS,
        "KV recomputed": "-",
        "destination loaded": "copying: it decodes at the source",
    },
    "waiting": {
        "both ends at a step boundary, much KV left": "waiting: it decodes at the source",
        "both ends at a step boundary, little KV left": "waiting: it decodes at the source",
        "destination refuses": "-",
        "stage limit exceeded": "-",
        "stage received": "refused",
        "a transfer was stopped": "refused",
        "request finished": _ENDED,
        "request preempted": _WAITS,
        "source lost": _FAILS,
        "destination lost": _DECODES,
        "destination leaves": _DECODES,
        "KV recomputed": "-",
        "destination loaded": "preparing: it decodes at the source",
    },
    "last stage": {
        "both ends at a step boundary, much KV left": "last stage: it is paused at the source",
        "both ends at a step boundary, little KV left": "last stage: it is paused at the source",
        "destination refuses": "-",
        "stage limit exceeded": "-",
        "stage received": "committed: it belongs to the destination",
        "a transfer was stopped": _RESUMES,
        "request finished": "refused",
        "request preempted": "refused",
        "source lost": _FAILS + _STOPS,
        "destination lost": _RESUMES + _STOPS,
        "destination leaves": _RESUMES + _STOPS,
        "KV recomputed": "-",
        "destination loaded": "last stage: it is paused at the source",
    },
    "recomputing": {
        "both ends at a step boundary, much KV left": "recomputing: it belongs to the destination",
        "both ends at a step boundary, little KV left": "recomputing: it belongs to the destination",
        "destination refuses": "-",
        "stage limit exceeded": "-",
        "stage received": "refused",
        "a transfer was stopped": "refused",
        "request finished": "committed: it has finished",
        "request preempted": "recomputing: it belongs to the destination",
        "source lost": "recomputing: it belongs to the destination",
        "destination lost": "aborted: it fails with the destination",
        "destination leaves": "recomputing: it belongs to the destination",
        "KV recomputed": "committed: it belongs to the destination",
        "destination loaded": "recomputing: it belongs to the destination",
    },
    "committed": {
        **_OVER,
        "stage received": "refused",
        "a transfer was stopped": "refused",
    },
    "aborted": {
        **_OVER,
        "stage received": "ignored",
        "a transfer was stopped": "ignored",
    },
}
CELLS = {(state, event): cell for state, row in _PLAYED.items() for event, cell in row.items()}
