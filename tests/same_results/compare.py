"""What differs between two records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from tests.same_results.outputs import FILE, Outputs

Record = Mapping[str, Outputs]  # configuration -> its outputs


@dataclass(frozen=True)
class Difference:
    """``kind``: ``differs``, ``new`` or ``gone``. ``output`` is empty where a whole configuration is."""

    configuration: str
    output: str
    kind: str

    def __str__(self) -> str:
        what = (
            f"{self.configuration}: {self.output}" if self.output else f"configuration {self.configuration}"
        )
        return f"{self.kind:8}{what}"


def differences(
    before: Record, after: Record, allow_new: bool = False, ignore: Sequence[str] = ()
) -> tuple[list[Difference], list[Difference]]:
    """(those that fail, those that are only told). ``ignore``: patterns of outputs not looked at.

    With ``allow_new`` what one side alone has is only told, and so is a whole file in which fields are new or
    gone.
    """
    failing, told = list[Difference](), list[Difference]()
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            recorded = name.startswith("recorded ")  # its file is found on one side alone
            kind = "new" if name in after else "gone"
            (told if allow_new or recorded else failing).append(Difference(name, "", kind))
            continue
        for one in _of_configuration(name, before[name], after[name], ignore):
            allowed = allow_new and (one.kind != "differs" or _file_of_changed_fields(one, before, after))
            (told if allowed else failing).append(one)
    return failing, told


def _of_configuration(name: str, before: Outputs, after: Outputs, ignore: Sequence[str]) -> list[Difference]:
    found = []
    for output in sorted(before.keys() | after.keys()):
        if before.get(output) != after.get(output) and not any(fnmatch(output, one) for one in ignore):
            kind = "new" if output not in before else "gone" if output not in after else "differs"
            found.append(Difference(name, output, kind))
    return found


def _file_of_changed_fields(one: Difference, before: Record, after: Record) -> bool:
    """Whether a file's bytes must differ, since it has other fields than before."""
    if not one.output.endswith(FILE):
        return False
    prefix = one.output.removesuffix(FILE) + "."
    fields = [
        {output for output in side[one.configuration] if output.startswith(prefix)}
        for side in (before, after)
    ]
    return fields[0] != fields[1]
