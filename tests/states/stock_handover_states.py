"""A request at stock engines that prefill or decode; at first there are two of each."""

TITLE = "Request at a stock engine that prefills or decodes"
WHERE = "serving/services/stock/handover.py"
STATES = ("prefills", "KV in transfer", "decodes", "over")
EVENTS = (
    "tokens received", "last token received", "KV received", "KV transfer failed", "connection closed",
    "its source lost", "its target lost", "both sources lost", "both targets lost",
)  # fmt: skip
CELLS = {
    ("prefills", "tokens received"): "Send: KV in transfer",
    ("prefills", "last token received"): "over",
    ("prefills", "KV received"): "-",
    ("prefills", "KV transfer failed"): "-",
    ("prefills", "connection closed"): "Assign: prefills",
    ("prefills", "its source lost"): "Assign: prefills",
    ("prefills", "its target lost"): "-",
    ("prefills", "both sources lost"): "Assign, Fail: over",
    ("prefills", "both targets lost"): "Fail: over",
    ("KV in transfer", "tokens received"): "-",
    ("KV in transfer", "last token received"): "-",
    ("KV in transfer", "KV received"): "decodes",
    ("KV in transfer", "KV transfer failed"): "Assign: prefills",
    ("KV in transfer", "connection closed"): "Assign: prefills",
    ("KV in transfer", "its source lost"): "Preempt, Assign: prefills",
    ("KV in transfer", "its target lost"): "Assign: prefills",
    ("KV in transfer", "both sources lost"): "Preempt, Assign, Fail: over",
    ("KV in transfer", "both targets lost"): "Assign, Fail: over",
    ("decodes", "tokens received"): "decodes",
    ("decodes", "last token received"): "over",
    ("decodes", "KV received"): "refused",
    ("decodes", "KV transfer failed"): "refused",
    ("decodes", "connection closed"): "Assign: prefills",
    ("decodes", "its source lost"): "decodes",
    ("decodes", "its target lost"): "Assign: prefills",
    ("decodes", "both sources lost"): "decodes",
    ("decodes", "both targets lost"): "Assign, Fail: over",
    ("over", "tokens received"): "refused",
    ("over", "last token received"): "refused",
    ("over", "KV received"): "refused",
    ("over", "KV transfer failed"): "refused",
    ("over", "connection closed"): "refused",
    ("over", "its source lost"): "over",
    ("over", "its target lost"): "over",
    ("over", "both sources lost"): "over",
    ("over", "both targets lost"): "over",
}
