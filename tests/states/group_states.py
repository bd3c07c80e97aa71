"""A data-parallel group in the simulated world: what it does, then its state."""

TITLE = "Data-parallel group"
WHERE = "simcore/lockstep/group.py"
STATES = ("paused", "stepping", "boundary", "lost")
EVENTS = ("run asked", "dummy step asked", "interrupt", "due", "rank lost")
CELLS = {
    ("paused", "run asked"): "due now: paused",
    ("paused", "dummy step asked"): "-",
    ("paused", "interrupt"): "paused",
    ("paused", "due"): "asks again, steps begin: stepping",
    ("paused", "rank lost"): "lost",
    ("stepping", "run asked"): "due at the next boundary: stepping",
    ("stepping", "dummy step asked"): "-",
    ("stepping", "interrupt"): "due at the next boundary: stepping",
    ("stepping", "due"): "reports, steps begin: stepping",
    ("stepping", "rank lost"): "lost",
    ("boundary", "run asked"): "begins it: boundary",
    ("boundary", "dummy step asked"): "asks again at the next one: boundary",
    ("boundary", "interrupt"): "boundary",
    ("boundary", "due"): "-",
    ("boundary", "rank lost"): "-",
    ("lost", "run asked"): "lost",
    ("lost", "dummy step asked"): "-",
    ("lost", "interrupt"): "lost",
    ("lost", "due"): "lost",
    ("lost", "rank lost"): "lost",
}
