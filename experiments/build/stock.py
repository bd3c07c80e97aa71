"""What is decided of requests at stock engines, from a configuration."""

from experiments.config.config import RunConfig
from experiments.config.http_config import ELSEWHERE, HTTP
from serving.composition import MigrationParts
from serving.services.stock import StockParts

NS_PER_MS = 1_000_000


def stock_of(config: RunConfig, migration: MigrationParts | None) -> StockParts | None:
    """None: engines are ours."""
    if config.world != HTTP:
        return None
    migrator = None if migration is None else migration.migrator
    period_ns = round(config.migration.period_ms * NS_PER_MS)
    return StockParts(config.http.lost == ELSEWHERE, migrator, period_ns)
