"""A PID controller whose output is limited to 0 and a bound, without integral windup meanwhile."""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Gains:
    """Kp, Ki (1/s) and Kd (s) of Eq. 3."""

    proportional: float
    integral_per_s: float
    derivative_s: float

    def __post_init__(self) -> None:
        if min(self.proportional, self.integral_per_s, self.derivative_s) < 0:
            raise ValueError("gains of a PID controller are 0 or more")


class Pid:
    """One loop. Its integral stands still while the output is cut off; an error of 0 or less resets it to 0.

    The output is added to a number of replicas, which persists from step to step. Replicas started in a burst
    stay, so an integral that outlived the burst would go on adding. ``anti_windup`` False, for comparison:
    the loop sums every finite error, whatever becomes of the output.
    """

    __slots__ = ("_anti_windup", "_gains", "_last", "integral")

    def __init__(self, gains: Gains, anti_windup: bool = True) -> None:
        self._gains, self._anti_windup = gains, anti_windup
        self._last: float | None = None
        self.integral = 0.0

    def step(self, error: float, elapsed_s: float, most: float, hold: bool = False) -> float:
        """The output for this error, from 0 to ``most``. ``hold``: the last output is not in effect yet.

        An infinite error gives ``most``; the next error has no slope, and the integral stands still.
        """
        if not isfinite(error):
            self._last = None
            return most if error > 0 else 0.0
        if error <= 0 and self._anti_windup:
            self.integral, self._last = 0.0, error
            return 0.0
        integral = self.integral + error * elapsed_s
        slope = 0.0 if self._last is None or elapsed_s <= 0 else (error - self._last) / elapsed_s
        self._last = error
        wanted = (
            self._gains.proportional * error
            + self._gains.integral_per_s * integral
            + self._gains.derivative_s * slope
        )
        if not self._anti_windup or (wanted < most and not hold):
            self.integral = integral
        return min(max(wanted, 0.0), most)
