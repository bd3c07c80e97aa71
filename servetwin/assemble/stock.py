"""Builds the control plane's decisions for requests at stock engines from the configuration."""

from servetwin.assemble.hosted import hosted_models
from servetwin.config.config import RunConfig
from servetwin.config.http_config import ELSEWHERE, HTTP, TOGETHER
from serving.composition import MigrationParts
from serving.services.stock.handover import HandOverParts
from serving.services.stock.service import StockParts

NS_PER_MS = 1_000_000


def stock_of(config: RunConfig, migration: MigrationParts | None) -> StockParts | None:
    """Return the parts for stock engines; None if the engines are this package's."""
    if config.world != HTTP:
        return None
    migrator = None if migration is None else migration.migrator
    period_ns = round(config.migration.period_ms * NS_PER_MS)
    return StockParts(config.http.lost == ELSEWHERE, migrator, period_ns, _hand_over(config))


def _hand_over(config: RunConfig) -> HandOverParts | None:
    """Return the hand-over parts; None if every engine does both prefill and decode."""
    if not config.system.instances.split:
        return None
    (model,) = hosted_models(config)
    return HandOverParts(model.shape.kv_bytes_per_token, config.http.hand_over == TOGETHER)
