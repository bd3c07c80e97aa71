"""ServeTwin from Python: simulate, sweep, plan and advise, with tables of pandas.

>>> import servetwin as st
>>> run = st.simulate("system=vllm", trace="azure_conv_like", trace__requests=100)
>>> run.summary["requests"]["finished"]
100

Words are those of the commands of the same names; in keyword arguments two underscores stand for a dot, or
for the slash of a group (``trace__rate_per_s=20``, ``system__dispatch="round_robin"``), and a policy may be
given as its class. What a command refuses in a sentence is a ``UserError`` here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servetwin.api import (
        Advice,
        Plan,
        PolicyError,
        Reproduction,
        Run,
        Sweep,
        UserError,
        advise,
        plan,
        read,
        simulate,
        sweep,
    )

__version__: str
__all__ = [
    "Advice",
    "Plan",
    "PolicyError",
    "Reproduction",
    "Run",
    "Sweep",
    "UserError",
    "__version__",
    "advise",
    "plan",
    "read",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; commands import this package too and use none of its names.

    ``__version__`` is the version of the installed package, which ``servetwin --version`` also prints.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        return version("servetwin")
    from servetwin import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
