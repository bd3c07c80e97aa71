"""The experts of an entry of hwmodels/catalogue/linear_composed.yaml: lines, their errors, exchanges."""

from dataclasses import asdict

import numpy as np

from hwmodels.profiles.profile import Exchange, ExpertTable, Floats, Profile
from hwmodels.step_times.all_reduce_fit import fit_stretches
from hwmodels.step_times.expert_lines import ExpertLines, fit_expert_lines
from hwmodels.step_times.expert_times import lattice_points
from scripts.linear_entry import mapping_lines, number


def expert_lines(profile: Profile) -> list[str]:
    """Nothing for a dense model; else every way to share experts, and exchanges between engines."""
    tables = profile.tables.experts
    if not tables:
        return []
    fits = [fit_expert_lines(table) for table in tables]
    errors = np.concatenate([_errors(one, fit) for one, fit in zip(tables, fits)])
    sizes = np.abs(errors) * 100.0
    found = [f"  experts_band: experts {sizes.mean():.1f} / {np.percentile(sizes, 95):.1f} %", "  experts:"]
    for fit in fits:
        found += _item(
            {key: number(value) for key, value in asdict(fit).items()},
        )
    if profile.tables.exchange:
        found.append("  exchange:")
        for exchange in profile.tables.exchange:
            found += _exchange(exchange)
    return found


def _errors(table: ExpertTable, fit: ExpertLines) -> Floats:
    """Of every number of tokens at its most activated experts."""
    most = {tokens: (experts, seconds) for tokens, experts, seconds in lattice_points(table.lattice)}
    tokens = np.array(list(most), dtype=np.float64)
    experts, seconds = np.array(list(most.values())).T
    errors: Floats = fit.seconds(tokens, experts) / seconds - 1.0
    return errors


def _exchange(exchange: Exchange) -> list[str]:
    tokens = np.array(exchange.curve.counts, dtype=np.float64)
    fit = fit_stretches(tokens, np.array(exchange.curve.seconds))
    stretches = ", ".join(
        f"[{one.from_size}, {number(one.start_s)}, {number(one.s_per_unit)}]" for one in fit.stretches
    )
    return _item(
        {
            "ranks": str(exchange.ranks),
            "last_tokens": str(exchange.curve.counts[-1]),
            "source": f'"{exchange.source}"',
            "stretches": f"[{stretches}]",
        }
    )


def _item(values: dict[str, str]) -> list[str]:
    """One item of a list, as a mapping."""
    first, *rest = mapping_lines(values)
    return [f"    - {first.strip()}", *(f"  {line}" for line in rest)]
