"""A stage of a language model: to which cuts it belongs while a new cut comes, is made or is given up."""

TITLE = "Stage of a language model"
WHERE = "serving/services/language/path_stages.py"
STATES = (
    "in no cut",
    "in the new cut",
    "in the present cut",
    "in the present cut while another comes",
    "in both cuts",
)
EVENTS = (
    "a new cut with the stage comes",
    "a new cut without the stage comes",
    "the new cut is made",
    "the new cut is given up",
)
CELLS = {
    ("in no cut", "a new cut with the stage comes"): "in the new cut",
    ("in no cut", "a new cut without the stage comes"): "in no cut",
    ("in no cut", "the new cut is made"): "in no cut",
    ("in no cut", "the new cut is given up"): "in no cut",
    ("in the new cut", "a new cut with the stage comes"): "refused",
    ("in the new cut", "a new cut without the stage comes"): "refused",
    ("in the new cut", "the new cut is made"): "in the present cut, with the arrivals of the model",
    ("in the new cut", "the new cut is given up"): "in no cut, its replicas leave",
    ("in the present cut", "a new cut with the stage comes"): "in both cuts",
    ("in the present cut", "a new cut without the stage comes"): "in the present cut while another comes",
    ("in the present cut", "the new cut is made"): "-",
    ("in the present cut", "the new cut is given up"): "-",
    ("in the present cut while another comes", "a new cut with the stage comes"): "refused",
    ("in the present cut while another comes", "a new cut without the stage comes"): "refused",
    ("in the present cut while another comes", "the new cut is made"): "in no cut, its replicas leave",
    ("in the present cut while another comes", "the new cut is given up"): "in the present cut",
    ("in both cuts", "a new cut with the stage comes"): "refused",
    ("in both cuts", "a new cut without the stage comes"): "refused",
    ("in both cuts", "the new cut is made"): "in the present cut",
    ("in both cuts", "the new cut is given up"): "in the present cut",
}
