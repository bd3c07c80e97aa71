"""What a server does around its engine: a request's way in, and the way of its tokens out to the client."""

from dataclasses import dataclass, replace
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_times.engine_overhead import DECLARED_BAND, DECLARED_FACTOR

_TIMES: Final = ("way_in_s", "request_s", "prompt_token_s", "way_out_s", "running_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """The HTTP side of one engine: ``api_servers`` processes, each of which prepares one request at a time.

    ``request_s`` + ``prompt_token_s`` x prompt tokens: how long a process is busy with a request (parsing,
    chat template, tokeniser). ``way_in_s``: how long it then takes to the engine. ``way_out_s``: from the
    engine's token to the client's (detokeniser, HTTP, the client's own reading). ``running_s``: what each
    request that decodes at the same time adds to that, because one process sends the tokens of a step one
    after another. ``error_s``: how far off TTFT a fitted front end was; None: it was declared.
    """

    way_in_s: float = 0.0
    request_s: float = 0.0
    prompt_token_s: float = 0.0
    way_out_s: float = 0.0
    running_s: float = 0.0
    api_servers: int = 1
    error_s: float | None = None
    source: str = "none declared"

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise HardwareError(f"{name}={value} is not a time; write 0 or a positive number of seconds")
        if self.api_servers < 1:
            raise HardwareError(f"api_servers={self.api_servers} is none; write 1 or more")

    @property
    def exists(self) -> bool:
        """Whether it takes any time."""
        return any(getattr(self, name) for name in _TIMES)

    def busy_s(self, prompt_tokens: int) -> float:
        """How long a process works on a request before the engine can have it."""
        return self.request_s + self.prompt_token_s * prompt_tokens

    def ends(self) -> tuple["FrontEnd", "FrontEnd", str]:
        """The least and the most it may take, and the reason."""
        if not self.exists:
            return self, self, "none"
        if self.error_s is None:
            low, high = self._times(1.0 / DECLARED_FACTOR), self._times(DECLARED_FACTOR)
            return low, high, DECLARED_BAND
        low = replace(self, way_out_s=max(0.0, self.way_out_s - self.error_s))
        high = replace(self, way_out_s=self.way_out_s + self.error_s)
        return low, high, f"fitted, {1e3 * self.error_s:.2g} ms a request either way"

    def _times(self, factor: float) -> "FrontEnd":
        return replace(self, **{name: getattr(self, name) * factor for name in _TIMES})


NO_FRONT_END: Final = FrontEnd(source="none: requests are handed to the engine directly")
