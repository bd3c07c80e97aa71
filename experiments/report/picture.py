"""Pictures as files: the formats, and atomic writing."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg", ".pdf")


def require_picture(path: Path) -> None:
    """Raise UserError if ``path`` ends in none of ``SUFFIXES``."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"plot={path} is no picture: write a name that ends in {', '.join(SUFFIXES)}")


def save(figure: "Figure", path: Path, dpi: int) -> None:
    """Write the figure to ``path`` and close it. UserError if it cannot be written."""
    from matplotlib import pyplot

    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial, dpi=dpi)
        partial.replace(path)
    except OSError as error:
        raise UserError(f"plot={path} cannot be written ({error.strerror}): write another path") from None
    finally:
        partial.unlink(missing_ok=True)
        pyplot.close(figure)
