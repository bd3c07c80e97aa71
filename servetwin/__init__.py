"""ServeTwin from Python: simulate, sweep and plan, with tables of pandas.

>>> import servetwin as st
>>> run = st.simulate("system=vllm", trace="azure_conv_like", trace__requests=100)
>>> run.summary["requests"]["finished"]
100

Words are those of the commands of the same names; in keyword arguments two underscores stand for a dot, or
for the slash of a group (``trace__rate_per_s=20``, ``system__dispatch="round_robin"``), and a policy may be
given as its class. What a command refuses in a sentence is a ``UserError`` here.
"""

from typing import Any

from servetwin.api.plans import Plan, plan
from servetwin.api.runs import Run, read, simulate
from servetwin.api.sweeps import Sweep, sweep
from serving.vocabulary.errors import PolicyError, UserError

__all__ = [
    "Plan",
    "PolicyError",
    "Run",
    "Sweep",
    "UserError",
    "__version__",
    "plan",
    "read",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """``__version__`` of the installed package, as ``servetwin --version`` says; read when asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("servetwin")
