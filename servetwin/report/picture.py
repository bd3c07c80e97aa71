"""Pictures as files: a figure that belongs to no notebook, the formats, and atomic writing."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from servetwin.config.whole_file import whole_file
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg", ".pdf")


def require_picture(path: Path, key: str = "plot") -> None:
    """Raise UserError if ``path`` ends in none of ``SUFFIXES``. ``key``: the word that names it."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{key}={path} is no picture: write a name that ends in {', '.join(SUFFIXES)}")


def new_figure(width_in: float, height_in: float) -> "Figure":
    """An empty figure without pyplot, whose backend and open figures stay as a notebook has them."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def save(figure: "Figure", path: Path, dpi: int) -> None:
    """Write the figure to ``path``. UserError if it cannot be written."""
    with whole_file("plot", path) as half:
        figure.savefig(half, dpi=dpi)
