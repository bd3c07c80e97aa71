"""A model that the load monitor checks periodically; it starts as not monitored.

Within bounds: its scaler wants nothing until a load exceeds a bound that it gave.
Starved: the model has no instance and no GPU is free.
"""

TITLE = "Model watched by the load monitor"
WHERE = "serving/elastic/elastic.py"
STATES = ("not monitored", "monitored", "within bounds", "starved")
EVENTS = (
    "request within the bounds", "request beyond the bounds", "check: nothing wanted, bounds given",
    "check: nothing wanted, no load", "check: instance wanted, no GPU",
    "check: instance wanted, a GPU is free",
)  # fmt: skip
CELLS = {
    ("not monitored", "request within the bounds"): "scaler asked: monitored",
    ("not monitored", "request beyond the bounds"): "scaler asked: monitored",
    ("not monitored", "check: nothing wanted, bounds given"): "not monitored",
    ("not monitored", "check: nothing wanted, no load"): "not monitored",
    ("not monitored", "check: instance wanted, no GPU"): "not monitored",
    ("not monitored", "check: instance wanted, a GPU is free"): "not monitored",
    ("monitored", "request within the bounds"): "monitored",
    ("monitored", "request beyond the bounds"): "monitored",
    ("monitored", "check: nothing wanted, bounds given"): "scaler asked: within bounds",
    ("monitored", "check: nothing wanted, no load"): "scaler asked: not monitored",
    ("monitored", "check: instance wanted, no GPU"): "scaler asked: starved",
    ("monitored", "check: instance wanted, a GPU is free"): "scaler asked, load starts: monitored",
    ("within bounds", "request within the bounds"): "within bounds",
    ("within bounds", "request beyond the bounds"): "scaler asked: monitored",
    ("within bounds", "check: nothing wanted, bounds given"): "within bounds",
    ("within bounds", "check: nothing wanted, no load"): "within bounds",
    ("within bounds", "check: instance wanted, no GPU"): "within bounds",
    ("within bounds", "check: instance wanted, a GPU is free"): "within bounds",
    ("starved", "request within the bounds"): "starved",
    ("starved", "request beyond the bounds"): "monitored",
    ("starved", "check: nothing wanted, bounds given"): "starved",
    ("starved", "check: nothing wanted, no load"): "starved",
    ("starved", "check: instance wanted, no GPU"): "starved",
    ("starved", "check: instance wanted, a GPU is free"): "scaler asked, load starts: monitored",
}
