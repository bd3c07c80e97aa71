"""A request whose client goes away: the actions that the event causes, then its state.

"held" is of a request whose KV moves or whose layers run; it is tried again after every event.
"""

TITLE = "Request whose client goes away"
WHERE = "serving/services/aborts.py"
STATES = (
    "waits for an instance", "waits at an instance", "computes its prompt", "decodes",
    "waits for its hand-over", "in its hand-over", "in the last stage of its migration", "held", "leaving",
    "ended",
)  # fmt: skip
EVENTS = (
    "its client leaves", "step boundary", "it finishes", "its KV arrives", "its instance lost",
)  # fmt: skip
_PLAYED = {
    ("waits for an instance", "its client leaves"): "Abort: ended",
    ("waits at an instance", "its client leaves"): "Abort, Interrupt: ended",
    ("computes its prompt", "its client leaves"): "Interrupt: leaving",
    ("decodes", "its client leaves"): "Interrupt: leaving",
    ("waits for its hand-over", "its client leaves"): "Abort: ended",
    ("in its hand-over", "its client leaves"): "held",
    ("in the last stage of its migration", "its client leaves"): "held",
    ("held", "its client leaves"): "held",
    ("held", "its KV arrives"): "JoinBatch, Run, Interrupt: leaving",
    ("held", "its instance lost"): "Fail, StopSend: ended",
    ("held", "step boundary"): "held",
    ("leaving", "its client leaves"): "leaving",
    ("leaving", "step boundary"): "Abort: ended",
    ("leaving", "it finishes"): "ended",
    ("leaving", "its instance lost"): "Fail: ended",
}
CELLS = {(state, event): _PLAYED.get((state, event), "-") for state in STATES for event in EVENTS}
