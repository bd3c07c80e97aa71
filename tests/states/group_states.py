"""A data-parallel group of the simulator: what it does at the event, then its state."""

TITLE = "Data-parallel group"
WHERE = "simcore/lockstep/group.py"
STATES = ("paused", "stepping", "boundary", "lost")
EVENTS = ("run requested", "dummy step requested", "interrupt", "due", "rank lost")
CELLS = {
    ("paused", "run requested"): "due now: paused",
    ("paused", "dummy step requested"): "-",
    ("paused", "interrupt"): "paused",
    ("paused", "due"): "reports, steps begin: stepping",
    ("paused", "rank lost"): "lost",
    ("stepping", "run requested"): "due at the next boundary: stepping",
    ("stepping", "dummy step requested"): "-",
    ("stepping", "interrupt"): "due at the next boundary: stepping",
    ("stepping", "due"): "reports, steps begin: stepping",
    ("stepping", "rank lost"): "lost",
    ("boundary", "run requested"): "starts it: boundary",
    ("boundary", "dummy step requested"): "reports at the next boundary: boundary",
    ("boundary", "interrupt"): "boundary",
    ("boundary", "due"): "-",
    ("boundary", "rank lost"): "-",
    ("lost", "run requested"): "lost",
    ("lost", "dummy step requested"): "-",
    ("lost", "interrupt"): "lost",
    ("lost", "due"): "lost",
    ("lost", "rank lost"): "lost",
}
