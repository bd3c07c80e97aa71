"""A stage of a language model: of which cut it is, while others come, are made or given up."""

TITLE = "Stage of a language model"
WHERE = "serving/services/path_stages.py"
STATES = (
    "no cut's",
    "the coming cut's",
    "the present cut's",
    "the present cut's while another comes",
    "both cuts'",
)
EVENTS = ("a cut with it comes", "a cut without it comes", "the cut is made", "it is given up")
CELLS = {
    ("no cut's", "a cut with it comes"): "the coming cut's",
    ("no cut's", "a cut without it comes"): "no cut's",
    ("no cut's", "the cut is made"): "no cut's",
    ("no cut's", "it is given up"): "no cut's",
    ("the coming cut's", "a cut with it comes"): "refused",
    ("the coming cut's", "a cut without it comes"): "refused",
    ("the coming cut's", "the cut is made"): "the present cut's, with the arrivals of the model",
    ("the coming cut's", "it is given up"): "no cut's, its replicas go",
    ("the present cut's", "a cut with it comes"): "both cuts'",
    ("the present cut's", "a cut without it comes"): "the present cut's while another comes",
    ("the present cut's", "the cut is made"): "-",
    ("the present cut's", "it is given up"): "-",
    ("the present cut's while another comes", "a cut with it comes"): "refused",
    ("the present cut's while another comes", "a cut without it comes"): "refused",
    ("the present cut's while another comes", "the cut is made"): "no cut's, its replicas go",
    ("the present cut's while another comes", "it is given up"): "the present cut's",
    ("both cuts'", "a cut with it comes"): "refused",
    ("both cuts'", "a cut without it comes"): "refused",
    ("both cuts'", "the cut is made"): "the present cut's",
    ("both cuts'", "it is given up"): "the present cut's",
}
