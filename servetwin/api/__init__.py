"""What ``import servetwin`` offers: runs, sweeps, plans and advices as Python objects.

ImportError if a module of the script's folder has the name of one of ServeTwin's packages.
"""

from servetwin.shadowed_packages import namesake

if (_sentence := namesake()) is not None:
    raise ImportError(_sentence)

from servetwin.api.advices import Advice, advise
from servetwin.api.folders import Reproduction, read
from servetwin.api.plans import Plan, plan
from servetwin.api.runs import Run, simulate
from servetwin.api.sweeps import Sweep, sweep
from serving.vocabulary.errors import PolicyError, UserError

__all__ = [
    "Advice",
    "Plan",
    "PolicyError",
    "Reproduction",
    "Run",
    "Sweep",
    "UserError",
    "advise",
    "plan",
    "read",
    "simulate",
    "sweep",
]
