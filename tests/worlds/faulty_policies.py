"""Faulty policies, the error message they cause, and a view for scalers."""

from collections.abc import Callable

from serving.protocols.scaling import FixedRole, InstanceView, ScalingView


def answering(answer: object) -> Callable[..., object]:
    return lambda self, *shown: answer


def raising(error: BaseException) -> Callable[..., object]:
    def fail(self: object, *shown: object) -> object:
        raise error

    return fail


def sentence(policy: type, method: str) -> str:
    return f"policy {policy.__module__}:{policy.__qualname__}, method {method}, event "


SERVING = (InstanceView(0, "serving"), InstanceView(1, "serving"), InstanceView(2, "draining"))
ROLES = (FixedRole("prefill", SERVING, 1, 3), FixedRole("decode", (InstanceView(5, "serving"),), 1, 2))
VIEW = ScalingView(0, "m", ROLES, 0, 0, 0, 1.0, 1, 1.0, 4, (7,))
