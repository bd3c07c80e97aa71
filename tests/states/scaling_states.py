"""A model as the load monitor looks at it; it begins at rest.

Calm: its scaler wants nothing until its loads are above some bounds. Starved: no instance and no free GPU.
"""

TITLE = "Model at the looks of the load monitor"
WHERE = "serving/elastic/elastic.py"
STATES = ("at rest", "looked at", "calm", "starved")
EVENTS = (
    "request within the bounds", "request beyond them", "look: nothing wanted, calm",
    "look: nothing wanted, no load", "look: wanted, no GPU", "look: a GPU is free",
)  # fmt: skip
CELLS = {
    ("at rest", "request within the bounds"): "asked: looked at",
    ("at rest", "request beyond them"): "asked: looked at",
    ("at rest", "look: nothing wanted, calm"): "at rest",
    ("at rest", "look: nothing wanted, no load"): "at rest",
    ("at rest", "look: wanted, no GPU"): "at rest",
    ("at rest", "look: a GPU is free"): "at rest",
    ("looked at", "request within the bounds"): "looked at",
    ("looked at", "request beyond them"): "looked at",
    ("looked at", "look: nothing wanted, calm"): "asked: calm",
    ("looked at", "look: nothing wanted, no load"): "asked: at rest",
    ("looked at", "look: wanted, no GPU"): "asked: starved",
    ("looked at", "look: a GPU is free"): "asked, loads: looked at",
    ("calm", "request within the bounds"): "calm",
    ("calm", "request beyond them"): "asked: looked at",
    ("calm", "look: nothing wanted, calm"): "calm",
    ("calm", "look: nothing wanted, no load"): "calm",
    ("calm", "look: wanted, no GPU"): "calm",
    ("calm", "look: a GPU is free"): "calm",
    ("starved", "request within the bounds"): "starved",
    ("starved", "request beyond them"): "looked at",
    ("starved", "look: nothing wanted, calm"): "starved",
    ("starved", "look: nothing wanted, no load"): "starved",
    ("starved", "look: wanted, no GPU"): "starved",
    ("starved", "look: a GPU is free"): "asked, loads: looked at",
}
