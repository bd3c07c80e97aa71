"""A figure that a notebook shows as a picture."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """Jupyter shows any figure once a notebook has drawn one with pyplot; this one before that too."""

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png")
        return drawn.getvalue()
