"""Whether a run is also evaluated at both ends of its step times' error."""

from typing import Final

ON: Final = "on"
OFF: Final = "off"
UNCERTAINTIES: Final = (ON, OFF)
