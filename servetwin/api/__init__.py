"""What ``import servetwin`` offers: runs, sweeps and plans as Python objects.

ImportError if a module of the script's folder has the name of one of ServeTwin's packages.
"""

from servetwin.shadowed_packages import namesake

if (_sentence := namesake()) is not None:
    raise ImportError(_sentence)

from servetwin.api.folders import read
from servetwin.api.plans import Plan, plan
from servetwin.api.runs import Run, simulate
from servetwin.api.sweeps import Sweep, sweep
from serving.vocabulary.errors import PolicyError, UserError

__all__ = ["Plan", "PolicyError", "Run", "Sweep", "UserError", "plan", "read", "simulate", "sweep"]
