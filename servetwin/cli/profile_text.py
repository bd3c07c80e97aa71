"""Formats profiles: the stamp, the measured ranges, and the table of errors in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hwmodels.errors import HardwareError

if TYPE_CHECKING:
    from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp
    from hwmodels.step_times.held_out import PhaseError


def stamp_text(stamp: "Stamp", digest: str) -> str:
    """Return the validity, source and every assumption of a profile; one line each."""
    lines = [
        f"{stamp.llm} on {stamp.gpu} tp={stamp.tp}",
        f"{stamp.engine} {stamp.engine_version}, {stamp.precision}",
        f"source: {stamp.source}; licence: {stamp.licence}",
        f"error: {stamp.error_band}",
        f"digest: {digest}",
        *(f"file: {name} sha256 {sha256}" for name, sha256 in stamp.files),
        *(f"note: {note}" for note in stamp.notes),
    ]
    return "\n".join(f"  {line}" for line in lines)


def stamp_data(stamp: "Stamp", digest: str) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {"digest": digest, "stamp": asdict(stamp)}


def errors_data(rungs: "Iterable[tuple[str, Sequence[PhaseError] | HardwareError]]") -> dict[str, Any]:
    """Map rung to its errors by phase, or to why it cannot be judged."""
    return {
        rung: {"not_judged": str(found)}
        if isinstance(found, HardwareError)
        else [asdict(one) for one in found]
        for rung, found in rungs
    }


def ranges_text(tables: "OpTables") -> str:
    """Return the measured range of each table; one line each."""
    lines = [f"dense: {_curve(tables.dense, 'tokens')}", f"head: {_curve(tables.head, 'sequences')}"]
    lines.append(
        f"all_reduce: {_curve(tables.all_reduce, 'tokens') if tables.all_reduce else 'not measured'}"
    )
    lines += _lattices("decode", tables.decode, ("sequences", "context tokens of each"))
    lines += _lattices("prefill", tables.prefill, ("new", "cached tokens"))
    mixed = ("new", "cached tokens", "decoding sequences", "context tokens of each")
    lines += _lattices("mixed", tables.mixed, mixed)
    lines += _lattices("skew", (tables.skew,) if tables.skew else (), ("new tokens", "decoding sequences"))
    return "\n".join(f"  {line}" for line in lines)


def errors_table(
    profiles: "Iterable[tuple[Profile, Iterable[tuple[str, Sequence[PhaseError] | HardwareError]]]]",
) -> str:
    """Return Markdown: error of whole steps by profile, phase and rung, on held-out grid lines."""
    lines = [
        "Error of a whole step on the grid lines kept from the model (every second one), in percent.",
        "",
        "| model | GPU | tp | phase | rung | points | mean | p95 | bias |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    not_judged = []
    for profile, rungs in profiles:
        stamp = profile.stamp
        for rung, errors in rungs:
            if isinstance(errors, HardwareError):
                not_judged.append(f"{rung} of {stamp.llm} on {stamp.gpu} tp={stamp.tp} not judged: {errors}")
                continue
            for error in errors:
                numbers = f"{error.mean_percent:.1f} | {error.p95_percent:.1f} | {error.bias_percent:+.1f}"
                where = f"{stamp.llm} | {stamp.gpu} | {stamp.tp} | {error.phase} | {rung} | {error.rows}"
                lines.append(f"| {where} | {numbers} |")
    return "\n".join([*lines, *([""] if not_judged else []), *not_judged])


def _curve(curve: "Curve", unit: str) -> str:
    return f"{curve.counts[0]} to {curve.counts[-1]} {unit}, {len(curve.counts)} points"


def _lattices(name: str, lattices: "Sequence[Lattice]", units: Sequence[str]) -> list[str]:
    if not lattices:
        return [f"{name}: not measured"]
    lines = []
    for lattice in lattices:
        axes = ", ".join(
            f"{unit} {axis[0]} to {axis[-1]} ({len(axis)})" for unit, axis in zip(units, lattice.axes)
        )
        measured = int((lattice.values == lattice.values).sum())  # NaN is not equal to itself
        lines.append(f"{name}: {axes}; {measured} of {lattice.values.size} points")
    return lines
