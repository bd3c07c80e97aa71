"""Which actions a run's driver can execute, and which its system may request."""

from collections.abc import Iterable
from typing import Final, get_args

from servetwin.assemble.data_plane import has_data_plane
from servetwin.config.config import RunConfig
from servetwin.config.faults_config import NO_FAULTS
from servetwin.config.http_config import HTTP
from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.driver import names_of
from serving.vocabulary.errors import UserError
from simcore.capabilities import carries_out

_KINDS: Final = {kind.__name__: kind for kind in get_args(Action)}
_SERVES: Final = (Assign, Reject, Run, Interrupt, Preempt)


def driver_actions(config: RunConfig) -> frozenset[type]:
    """Return the actions that the simulated driver executes. UserError for an unknown action name."""
    able, text = carries_out(has_data_plane(config), _ends_requests(config)), config.driver.carries_out
    return able if text is None else able & _actions_of(text)


def is_masked(config: RunConfig) -> bool:
    """Return whether the configuration removes actions from the driver."""
    return config.driver.carries_out is not None


def _actions_of(text: str) -> frozenset[type]:
    if text == "realexec":
        from realexec.world.actions import CARRIES_OUT

        return CARRIES_OUT
    if text == "http":
        from realexec.http.capabilities import BY_ITSELF, CARRIES_OUT

        return CARRIES_OUT | BY_ITSELF
    words = [word.strip() for word in text.strip("[]").replace("+", ",").split(",")]
    known = {name.lower(): kind for name, kind in _KINDS.items()}
    for word in words:
        if word.lower() not in known:
            raise UserError(
                f"driver.carries_out={text} has '{word}', which is no action: write realexec, http, or some "
                f"of [{','.join(sorted(_KINDS))}]"
            )
    return frozenset([known[word.lower()] for word in words])


def masked_words(config: RunConfig) -> tuple[str, str]:
    """Return, for an error message, which driver lacks an action and what to write instead."""
    driver = f"a driver with driver.carries_out={config.driver.carries_out}"
    return driver, "add it to the list, or write another system"


def needed_actions(config: RunConfig) -> frozenset[type]:
    """Return the actions that the run's system may request."""
    system, faults = config.system, config.faults != NO_FAULTS
    needed: set[type] = {*_SERVES}
    if config.cluster.start != "warm":
        needed.add(Load)
    if system.instances.split or system.live.name != "none":
        needed |= {Send, JoinBatch, *_if(faults, StopSend)}
    if system.migration.name != "none":
        needed |= {Detach, Migrate, Wake}
        if config.migration.mode != "recompute":
            needed |= {Send, StopSend, JoinBatch}
    if system.elastic:
        needed |= {
            AllocateGpus,
            Load,
            ReleaseGpus,
            Wake,
            *_if(faults, StopLoad),
            *_if(system.instances.split, SwitchRole),
        }
    if system.scales_stages:
        needed |= {AllocateGpus, Load, ReleaseGpus, StopLoad, Wake}
    return frozenset(needed | {*_if(faults, Fail), *_if(_ends_requests(config), Abort)})


def _ends_requests(config: RunConfig) -> bool:
    """Return whether requests may end early: clients go away, or drained instances may not finish them."""
    drains = config.system.instances.drain_s is not None and config.world != HTTP  # a server is asked to stop
    return config.trace.client_timeout_s is not None or drains


def _if(holds: bool, *kinds: type) -> Iterable[type]:
    return kinds if holds else ()


def check_capabilities(config: RunConfig) -> None:
    """Refuse a system that may request an action that the driver does not execute."""
    missing = needed_actions(config) - driver_actions(config) if is_masked(config) else frozenset()
    if not missing:
        return
    names, text = names_of(missing), config.driver.carries_out
    raise UserError(
        f"system={config.system.name} may ask for {', '.join(names)}, which a driver with "
        f"driver.carries_out={text} does not carry out: add {'it' if len(names) == 1 else 'them'} to the "
        "list, or write a system that does without, such as system=vllm"
    )
