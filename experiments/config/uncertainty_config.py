"""Whether a run is evaluated at the ends of its step times' error as well."""

from typing import Final

ON: Final = "on"
OFF: Final = "off"
UNCERTAINTIES: Final = (ON, OFF)
