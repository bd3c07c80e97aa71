"""What becomes of a request at a stock engine; another engine is there, and lost engines' requests go on."""

TITLE = "Request at a stock engine"
WHERE = "serving/services/stock.py"
STATES = ("sent", "running", "moved", "over")
EVENTS = (
    "tokens came", "the last token came", "refused", "connection broke", "broke three times", "engine lost",
    "paired as a source", "the other engine lost",
)  # fmt: skip
CELLS = {
    ("sent", "tokens came"): "running",
    ("sent", "the last token came"): "over",
    ("sent", "refused"): "Fail: over",
    ("sent", "connection broke"): "Assign: sent",
    ("sent", "broke three times"): "Assign, Assign, Fail: over",
    ("sent", "engine lost"): "Assign: sent",
    ("sent", "paired as a source"): "sent",
    ("sent", "the other engine lost"): "sent",
    ("running", "tokens came"): "running",
    ("running", "the last token came"): "over",
    ("running", "refused"): "Fail: over",
    ("running", "connection broke"): "Assign: sent",
    ("running", "broke three times"): "Assign, Assign, Fail: over",
    ("running", "engine lost"): "Assign: sent",
    ("running", "paired as a source"): "Preempt, Assign, Migrate: moved",
    ("running", "the other engine lost"): "running",
    ("moved", "tokens came"): "running",
    ("moved", "the last token came"): "over",
    ("moved", "refused"): "Fail: over",
    ("moved", "connection broke"): "Assign: sent",
    ("moved", "broke three times"): "Assign, Assign, Fail: over",
    ("moved", "engine lost"): "Assign: sent",
    ("moved", "paired as a source"): "-",
    ("moved", "the other engine lost"): "moved",
    ("over", "tokens came"): "refused",
    ("over", "the last token came"): "refused",
    ("over", "refused"): "refused",
    ("over", "connection broke"): "refused",
    ("over", "broke three times"): "refused",
    ("over", "engine lost"): "over",
    ("over", "paired as a source"): "over",
    ("over", "the other engine lost"): "over",
}
