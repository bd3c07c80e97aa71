"""A model as the load monitor looks at it; it begins at rest.

Within bounds: its scaler wants nothing until a load is above a bound that it named.
Starved: no instance and no free GPU.
"""

TITLE = "Model at the looks of the load monitor"
WHERE = "serving/elastic/elastic.py"
STATES = ("at rest", "looked at", "within bounds", "starved")
EVENTS = (
    "request within the bounds", "request beyond them", "look: nothing wanted, bounds named",
    "look: nothing wanted, no load", "look: wanted, no GPU", "look: a GPU is free",
)  # fmt: skip
CELLS = {
    ("at rest", "request within the bounds"): "asked: looked at",
    ("at rest", "request beyond them"): "asked: looked at",
    ("at rest", "look: nothing wanted, bounds named"): "at rest",
    ("at rest", "look: nothing wanted, no load"): "at rest",
    ("at rest", "look: wanted, no GPU"): "at rest",
    ("at rest", "look: a GPU is free"): "at rest",
    ("looked at", "request within the bounds"): "looked at",
    ("looked at", "request beyond them"): "looked at",
    ("looked at", "look: nothing wanted, bounds named"): "asked: within bounds",
    ("looked at", "look: nothing wanted, no load"): "asked: at rest",
    ("looked at", "look: wanted, no GPU"): "asked: starved",
    ("looked at", "look: a GPU is free"): "asked, loads: looked at",
    ("within bounds", "request within the bounds"): "within bounds",
    ("within bounds", "request beyond them"): "asked: looked at",
    ("within bounds", "look: nothing wanted, bounds named"): "within bounds",
    ("within bounds", "look: nothing wanted, no load"): "within bounds",
    ("within bounds", "look: wanted, no GPU"): "within bounds",
    ("within bounds", "look: a GPU is free"): "within bounds",
    ("starved", "request within the bounds"): "starved",
    ("starved", "request beyond them"): "looked at",
    ("starved", "look: nothing wanted, bounds named"): "starved",
    ("starved", "look: nothing wanted, no load"): "starved",
    ("starved", "look: wanted, no GPU"): "starved",
    ("starved", "look: a GPU is free"): "asked, loads: looked at",
}
