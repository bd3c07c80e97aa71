"""What becomes of a request where stock engines prefill or decode; two of each are there at first."""

TITLE = "Request at a stock engine that prefills or decodes"
WHERE = "serving/services/stock_handover.py"
STATES = ("prefills", "on its way", "decodes", "over")
EVENTS = (
    "tokens came", "the last token came", "the KV came", "the KV did not come", "connection broke",
    "its source lost", "its target lost", "both sources lost", "both targets lost",
)  # fmt: skip
CELLS = {
    ("prefills", "tokens came"): "Send: on its way",
    ("prefills", "the last token came"): "over",
    ("prefills", "the KV came"): "-",
    ("prefills", "the KV did not come"): "-",
    ("prefills", "connection broke"): "Assign: prefills",
    ("prefills", "its source lost"): "Assign: prefills",
    ("prefills", "its target lost"): "-",
    ("prefills", "both sources lost"): "Assign, Fail: over",
    ("prefills", "both targets lost"): "Fail: over",
    ("on its way", "tokens came"): "-",
    ("on its way", "the last token came"): "-",
    ("on its way", "the KV came"): "decodes",
    ("on its way", "the KV did not come"): "Assign: prefills",
    ("on its way", "connection broke"): "Assign: prefills",
    ("on its way", "its source lost"): "Preempt, Assign: prefills",
    ("on its way", "its target lost"): "Assign: prefills",
    ("on its way", "both sources lost"): "Preempt, Assign, Fail: over",
    ("on its way", "both targets lost"): "Assign, Fail: over",
    ("decodes", "tokens came"): "decodes",
    ("decodes", "the last token came"): "over",
    ("decodes", "the KV came"): "refused",
    ("decodes", "the KV did not come"): "refused",
    ("decodes", "connection broke"): "Assign: prefills",
    ("decodes", "its source lost"): "decodes",
    ("decodes", "its target lost"): "Assign: prefills",
    ("decodes", "both sources lost"): "decodes",
    ("decodes", "both targets lost"): "Assign, Fail: over",
    ("over", "tokens came"): "refused",
    ("over", "the last token came"): "refused",
    ("over", "the KV came"): "refused",
    ("over", "the KV did not come"): "refused",
    ("over", "connection broke"): "refused",
    ("over", "its source lost"): "over",
    ("over", "its target lost"): "over",
    ("over", "both sources lost"): "over",
    ("over", "both targets lost"): "over",
}
