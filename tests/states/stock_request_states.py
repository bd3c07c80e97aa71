"""A request at a stock engine; a second engine exists, and requests of a lost engine continue there."""

TITLE = "Request at a stock engine"
WHERE = "serving/services/stock/service.py"
STATES = ("sent", "running", "moved", "over")
EVENTS = (
    "tokens received", "last token received", "refused", "connection closed",
    "connection closed three times", "engine lost", "paired as a source", "other engine lost",
)  # fmt: skip
CELLS = {
    ("sent", "tokens received"): "running",
    ("sent", "last token received"): "over",
    ("sent", "refused"): "Fail: over",
    ("sent", "connection closed"): "Assign: sent",
    ("sent", "connection closed three times"): "Assign, Assign, Fail: over",
    ("sent", "engine lost"): "Assign: sent",
    ("sent", "paired as a source"): "sent",
    ("sent", "other engine lost"): "sent",
    ("running", "tokens received"): "running",
    ("running", "last token received"): "over",
    ("running", "refused"): "Fail: over",
    ("running", "connection closed"): "Assign: sent",
    ("running", "connection closed three times"): "Assign, Assign, Fail: over",
    ("running", "engine lost"): "Assign: sent",
    ("running", "paired as a source"): "Preempt, Assign, Migrate: moved",
    ("running", "other engine lost"): "running",
    ("moved", "tokens received"): "running",
    ("moved", "last token received"): "over",
    ("moved", "refused"): "Fail: over",
    ("moved", "connection closed"): "Assign: sent",
    ("moved", "connection closed three times"): "Assign, Assign, Fail: over",
    ("moved", "engine lost"): "Assign: sent",
    ("moved", "paired as a source"): "-",
    ("moved", "other engine lost"): "moved",
    ("over", "tokens received"): "refused",
    ("over", "last token received"): "refused",
    ("over", "refused"): "refused",
    ("over", "connection closed"): "refused",
    ("over", "connection closed three times"): "refused",
    ("over", "engine lost"): "over",
    ("over", "paired as a source"): "over",
    ("over", "other engine lost"): "over",
}
