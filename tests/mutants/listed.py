"""The mutants. A line is looked for in its package by its text without indentation, and must be there once.

So it is found again when it moves to another file; whoever changes such a line changes it here, or writes
another mutant for the same concern. ``tests`` are the files most likely to notice, the likeliest first.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TESTS = Path(__file__).resolve().parents[1]
_FILES = {path.stem: f"tests/{path.relative_to(_TESTS).as_posix()}" for path in _TESTS.rglob("test_*.py")}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` becomes ``new``, both one line; ``breaks``: what is then wrong."""

    name: str
    package: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]


def _mutant(name: str, package: str, old: str, new: str, breaks: str, tests: str) -> Mutant:
    return Mutant(name, package, old, new, breaks, tuple(_FILES[f"test_{one}"] for one in tests.split()))


MUTANTS: Final[tuple[Mutant, ...]] = (
    # Real workers: who is let in, what is taken, who is gone
    _mutant(
        "a listener takes any proof", "realexec",
        'if not _equal(_proof(secret, "client", theirs, mine, identity), receive("proof")):',
        'if not receive("proof"):',
        "a process that does not know the run's secret is accepted",
        "wire",
    ),
    _mutant(
        "a client asks for no proof", "realexec",
        'if not _equal(_proof(secret, "listener", mine, theirs, identity), challenge):',
        "if not challenge:",
        "a worker obeys a listener that does not know the secret",
        "wire",
    ),
    _mutant(
        "proofs without a side", "realexec",
        "said = json.dumps([VERSION, side, client, listener, identity], sort_keys=True)",
        "said = json.dumps([VERSION, client, listener, identity], sort_keys=True)",
        "a stranger is accepted that sends a listener's own proof back to it",
        "wire",
    ),
    _mutant(
        "true is a number", "realexec",
        "if type(value) is not kind:",
        "if not isinstance(value, kind):",
        "a message with true in place of a number is accepted",
        "messages",
    ),
    _mutant(
        "a peer trusts offsets", "realexec",
        "check_segments(segments, max(size for _, size in parts), size_bytes)",
        "check_segments(segments, max(size for _, size in parts), 1 << 62)",
        "a TCP reader may name bytes outside the arena",
        "transports",
    ),
    _mutant(
        "memory of the dead", "realexec",
        "if not self._alive():",
        "if self._alive() is None:",
        "a reader goes on reading the shared memory of a killed worker",
        "transports",
    ),
    _mutant(
        "any file as an arena", "realexec",
        'if (status.st_dev, status.st_ino) != (handle["device"], handle["inode"]):',
        'if status.st_dev != handle["device"]:',
        "a reused descriptor is mistaken for the arena",
        "arena",
    ),
    _mutant(
        "a path of one's own", "realexec",
        "ends_ns = max(int(booked_ns), from_ns) + for_ns",
        "ends_ns = from_ns + for_ns",
        "reads over one shaped path each get its full rate",
        "shaped",
    ),
    # KV ledger
    _mutant(
        "ledger rounds down", "serving",
        "return -(-tokens // self.block_tokens)", "return tokens // self.block_tokens",
        "the ledger counts one block too few for a request that ends within a block",
        "kv_ledger invariants exactness",
    ),
    _mutant(
        "ledger overruns", "serving",
        "rounds = free // self.decoding", "rounds = -(-free // self.decoding)",
        "a run may take more steps than it has blocks for",
        "kv_ledger exactness",
    ),
    _mutant(
        "cached to the last token", "serving",
        "whole = (one.known_tokens - 1) // block",
        "whole = one.known_tokens // block",
        "a prefix hit may cover the whole prompt, so that nothing is left to compute",
        "kv_ledger vllm_prefix_schedules exactness",
    ),
    # Prefix cache
    _mutant(
        "the step takes what others found", "serving",
        "taken = cache.queue.blocks - self._taken - free_blocks",
        "taken = cache.queue.blocks - free_blocks",
        "blocks that others found in this step leave the free queue before the request's own",
        "vllm_prefix_schedules kv_ledger",
    ),
    _mutant(
        "the newer copy is found", "serving",
        "if extent.start <= at < end and (best is None or extent.born < best.born):",
        "if extent.start <= at < end and (best is None or extent.born > best.born):",
        "of two copies of a block the newer one is taken out of the free queue",
        "vllm_prefix_schedules kv_ledger",
    ),
    _mutant(
        "a copy hides in a longer extent", "serving",
        "if not mine or table.copied or (start + 1) * self.block_tokens <= table.prefix_tokens:",
        "if not mine:",
        "of two copies of a block the one computed later is found",
        "vllm_prefix_schedules",
    ),
    _mutant(
        "a victim frees what others hold", "serving",
        "return held - sum(shared)", "return held",
        "too few requests are preempted where the victims share blocks",
        "kv_ledger vllm_prefix_schedules",
    ),
    _mutant(
        "found before it is computed", "serving",
        "return base + self.steps_done - 1 - self._late_tokens + decodes",
        "return base + self.steps_done - 1 + decodes",
        "under asynchronous scheduling a generated token's block can be shared one step early",
        "kv_ledger vllm_prefix_schedules",
    ),
    _mutant(
        "the first block is evicted first", "serving",
        "for extent in reversed(table.parts()):", "for extent in table.parts():",
        "a request that shares a prefix leaves it ahead of its own blocks in the free queue",
        "vllm_prefix_schedules kv_ledger",
    ),
    _mutant(
        "a head that may need less waits", "policies",
        "return decode_batch(1 if growing else kv.steps_until_full(), False) if decoding else None",
        "return decode_batch(kv.steps_until_full(), False) if decoding else None",
        "a run goes on although the head of the queue could now share blocks that another request generated",
        "shared_prefixes",
    ),
    # Engine
    _mutant(
        "old epoch counts", "serving",
        "if event.epoch < self.epoch:", "if event.epoch < self.epoch - 1:",
        "a report from before the replica was lost is refused instead of ignored",
        "engine_states engine controller",
    ),
    _mutant(
        "newcomers seen a step early", "serving",
        "while unseen_arrivals and unseen_arrivals[0].arrival_ns <= event.last_step_ns:",
        "while unseen_arrivals and unseen_arrivals[0].arrival_ns <= event.last_step_ns + 1:",
        "a request that arrives 1 ns after the last step began is seen at its end",
        "vllm_schedules exactness engine",
    ),
    _mutant(
        "newcomers do not shorten runs", "serving",
        "late = self.unseen_arrivals or self.attached or (self.ended and (self.waiting or not "
        "interruptible))",
        "late = self.attached or (self.ended and (self.waiting or not interruptible))",
        "an asynchronous engine runs on while an arrived request waits to be seen",
        "exactness vllm_schedules engine",
    ),
    _mutant(
        "ready amid a layer pass", "serving",
        "self.state = _IDLE if self.layer_pass is None else _RUNNING", "self.state = _IDLE",
        "an instance that finishes loading during a layer pass is marked idle",
        "engine live_scaling live_exactness",
    ),
    _mutant(
        "joins without memory", "serving",
        "or not fits",
        "or False",
        "a request joins a run whose steps may lack blocks for it",
        "engine decode_seats elastic_exactness",
    ),
    # Batches
    _mutant(
        "one admitted too many", "policies",
        "if admitted >= seats or not budget:", "if admitted > seats or not budget:",
        "chunked prefill admits one more than max_num_seqs",
        "batchers exactness vllm_schedules",
    ),
    _mutant(
        "decodes cost no budget", "policies",
        "budget = self.max_num_batched_tokens - decoding", "budget = self.max_num_batched_tokens",
        "a step computes more tokens than max_num_batched_tokens",
        "batchers exactness vllm_schedules",
    ),
    _mutant(
        "every victim needed a block", "policies",
        "need -= kv.takes_block_next_step(victim)", "need -= 1",
        "too few requests are preempted",
        "batchers exactness vllm_schedules",
    ),
    _mutant(
        "no watermark", "policies",
        "room = kv.free_blocks - kv.watermark_blocks", "room = kv.free_blocks",
        "prefill-first admits requests into the blocks of the watermark",
        "batchers exactness vllm_v0_schedules",
    ),
    # Seats and room of decode instances
    _mutant(
        "a seat too many", "serving",
        "return self.reserved_requests[replica] < self.max_num_seqs",
        "return self.reserved_requests[replica] <= self.max_num_seqs",
        "an instance with max_num_seqs requests stays among the targets",
        "decode_seats handover elastic_exactness",
    ),
    _mutant(
        "demand without blocks", "serving",
        "if (demand + need > capacity_tokens or blocks < 0 or len(batch) >= free_requests) and not forced:",
        "if (demand + need > capacity_tokens or len(batch) >= free_requests) and not forced:",
        "KV is sent to an instance that has no free blocks now",
        "decode_seats handover elastic_exactness",
    ),
    _mutant(
        "nobody makes room", "serving",
        "forced = not (batch or target.running or target.attached)", "forced = False",
        "a request whose first layers fill the only target waits forever",
        "split_kv live_exactness live_wide decode_seats live_corners",
    ),
    # Hand-over, KV in two places
    _mutant(
        "KV of the other layers", "serving",
        "return [(piece.replica, whole_bytes * len(piece.layers) // layers) for piece in pieces]",
        "return [(piece.replica, whole_bytes * (layers - len(piece.layers)) // layers) for piece in pieces]",
        "a piece's size is computed from the layers that it does not contain",
        "split_kv live_scaling live_exactness",
    ),
    _mutant(
        "sends to itself", "serving",
        "if size_bytes and replica != target:", "if size_bytes:",
        "KV that is already at the target is sent to it again",
        "split_kv live_scaling live_wide",
    ),
    _mutant(
        "releases what it keeps", "serving",
        "if piece.replica != target:", "if True:",
        "blocks of a piece at the target are freed",
        "split_kv live_scaling live_wide live_exactness",
    ),
    _mutant(
        "demand of the lost stays", "serving",
        "self.demand_tokens -= self._decode_capacity.forget(kept)", "self._decode_capacity.forget(kept)",
        "scalers still see the demand of requests that failed with their instance",
        "handover elastic_exactness live_wide",
    ),
    _mutant(
        "aborted moves go on", "serving",
        "actions.append(StopSend(transfer, reason))", "pass",
        "transfers of an aborted move are not stopped",
        "move_states handover_states split_kv",
    ),
    _mutant(
        "stopped KV has come", "serving",
        "self.abort(move, event.cause, actions)", "move.phase = _RESERVED",
        "a transfer that the world stopped counts as completed",
        "move_states handover_states first_layers_states",
    ),
    _mutant(
        "aborted targets keep blocks", "serving",
        "target.release([one for one in move.ids if not has_one(one, target.id)])", "pass",
        "the target of an aborted move keeps the blocks that were reserved",
        "move_states handover_states split_kv",
    ),
    _mutant(
        "activations sent to their source", "serving",
        '(batch.source, batch.target) if batch.where == "embedding" else (batch.target, batch.source)',
        "(batch.source, batch.target)",
        "activations whose transfer was stopped are sent again from target to source",
        "first_layers_states live_wide",
    ),
    # Live pairs
    _mutant(
        "quota overrun by one", "serving",
        "return batch.done >= batch.quota", "return batch.done > batch.quota",
        "a planned batch is not handed over when its layers are done",
        "live_pair live_policy live_exactness",
    ),
    _mutant(
        "layers of the new one forgotten", "serving",
        "batch.source, batch.done = _NO_REPLICA, batch.split", "batch.source, batch.done = _NO_REPLICA, 0",
        "when the source instance is lost the target runs its own layers again",
        "live_pair live_scaling live_wide",
    ),
    _mutant(
        "the head is there with the last layer", "serving",
        "layers = min(layers, self._setup.layers - 1)", "layers = min(layers, self._setup.layers)",
        "a live instance samples tokens before it has the head",
        "live_policy live_wide live_corners",
    ),
    _mutant(
        "the latest batch is pulled", "serving",
        "return min(offers, key=lambda one: (one.requests[0].arrival_ns, one.requests[0].id), default=None)",
        "return max(offers, key=lambda one: (one.requests[0].arrival_ns, one.requests[0].id), default=None)",
        "of several pairs' batches, the newest goes on instead of the oldest",
        "live_shows live_scaling live_corners",
    ),
    # Loads
    _mutant(
        "a load ends with its first target", "serving",
        "if UNDER_WAY not in flight.states:", "if THERE in flight.states:",
        "a load to several targets ends when the first target is complete",
        "loads deployment elastic_exactness",
    ),
    _mutant(
        "layers may vanish", "serving",
        'assert before != _WHOLE and before <= layers <= len(part), "a layer that was whole is not"',
        'assert before != _WHOLE and layers <= len(part), "a layer that was whole is not"',
        "a report with fewer layers than before is accepted",
        "loads",
    ),
    # Parameter pool, host cache, copies
    _mutant(
        "a copy on its way counts", "serving",
        "domains = [domain for domain in self.caches.domains_of(part) if domain not in coming]",
        "domains = list(self.caches.domains_of(part))",
        "an incomplete copy is used as a source",
        "parameter_pool copies",
    ),
    _mutant(
        "a copy that is read goes", "serving",
        "return not read and not self.is_last_copy(part, replica)",
        "return not self.is_last_copy(part, replica)",
        "a replica releases parameters that a reload still reads",
        "parameter_pool copies deployment",
    ),
    _mutant(
        "always since the last use", "serving",
        'return copy.used_ns if self.rules.since == "use" else copy.loaded_ns', "return copy.used_ns",
        "the time to live counts from the last use, whatever is configured",
        "host_cache copies",
    ),
    _mutant(
        "pinned copies go", "serving",
        "if not copies[part].pins and not self._last(part):", "if not self._last(part):",
        "a copy that a load still reads is evicted",
        "host_cache copies parameter_pool",
    ),
    _mutant(
        "renewed by every load", "serving",
        "if fully_loaded and (fetched or self._renewed):  # its time begins when it is there",
        "if fully_loaded:",
        "with since=fetch, a cache hit restarts the time to live",
        "copies host_cache",
    ),
    # Instances, the load monitor's looks, deployment, fleet
    _mutant(
        "parked one period longer", "serving",
        "over = [number for number, until_ns in self._parked.items() if until_ns <= now_ns]",
        "over = [number for number, until_ns in self._parked.items() if until_ns < now_ns]",
        "parameters on freed GPUs are still offered at the instant they expire",
        "instances deployment",
    ),
    _mutant(
        "looks at odd times", "serving",
        "self._look_ns = (now_ns // self._period_ns + 1) * self._period_ns",
        "self._look_ns = now_ns + self._period_ns",
        "the load monitor looks one period after the request instead of at its own ticks",
        "elastic deployment systems",
    ),
    _mutant(
        "the last copy leaves", "serving",
        "if self._loads.needs(number) or not self._copies.may_release(part, number):",
        "if self._loads.needs(number):",
        "an instance is released although no other memory has its layers",
        "deployment elastic elastic_exactness",
    ),
    _mutant(
        "overlaps too early", "serving",
        "return took_ns * (count - layers) <= self._limits[load.model].pass_ns * layers",
        "return took_ns * (count - layers) >= self._limits[load.model].pass_ns * layers",
        "a pass overlaps a load that takes longer than the pass",
        "deployment elastic systems",
    ),
    _mutant(
        "members out of order", "serving",
        "insort(self._alive, id)", "self._alive.append(id)",
        "a replica that comes back is placed last for round robin and random draws",
        "dispatch colocated_queue elastic",
    ),
    # Live plans
    _mutant(
        "a chain is as fast as its last edge", "serving",
        "slowest_ns = max(known) if len(known) == 1 + len(before) else None",
        "slowest_ns = own_ns",
        "a target's load time is estimated without its source's rate",
        "live_policy live_scaling",
    ),
    _mutant(
        "live without limit", "policies",
        "room = max(0, partners * self._per_partner - choice.pairs)",
        "room = max(0, partners * self._per_partner)",
        "active pairs do not count against targets_per_partner",
        "live_policy",
    ),
    # Scaling rules
    _mutant(
        "grows by the least", "policies",
        "count = within(role, (need.least + need.most + 1) // 2)", "count = within(role, need.least)",
        "growth stops at the upper bound instead of between the bounds",
        "scaling elastic",
    ),
    _mutant(
        "link rule ignored", "policies",
        'return exact(tokens_per_s) * (max(decode, 1) if rule == "shipped" else 1)',
        "return exact(tokens_per_s)",
        "the link rule is linear, whatever is configured",
        "scaling",
    ),
    _mutant(
        "quiet one token too low", "policies",
        "low = floor(exact(bounds.lower) * per_instance * (supply - 1)) + 1",
        "low = floor(exact(bounds.lower) * per_instance * (supply - 1))",
        "the fast path misses that an instance may be drained",
        "scaling",
    ),
    _mutant(
        "the last prefill instance decodes", "policies",
        "movable = _least_busy(prefill.view)[:-1]", "movable = _least_busy(prefill.view)",
        "all prefill instances may switch to decode",
        "scaling elastic systems",
    ),
    # Planning multicasts
    _mutant(
        "prefill keeps no bandwidth", "policies",
        "return port.bandwidth_bytes_per_s // 2 if port.serves_prefill else port.bandwidth_bytes_per_s",
        "return port.bandwidth_bytes_per_s",
        "a NIC of a prefill instance receives parameters at its full rate",
        "multicast provisioning",
    ),
    _mutant(
        "leaf that is too slow", "policies",
        "inside = held >= rate", "inside = held > 0",
        "targets read within a leaf whose senders are slower than the targets",
        "multicast",
    ),
    _mutant(
        "NIC shared by two sides", "policies",
        "if factor > 1 - 1e-9:  # what adding up fractions of a byte may miss", "if factor > 0:",
        "a source and a forwarder behind one NIC together exceed its rate",
        "multicast provisioning",
    ),
    _mutant(
        "host memory before a forwarder", "policies",
        "return not all(source.out_busy for source in (*wanted.holders, *draft.loading))",
        "return not all(source.out_busy for source in wanted.holders)",
        "a host's memory is read although loading instances could forward",
        "provisioning",
    ),
    # ZigZag
    _mutant(
        "best effort without half", "policies",
        "split.append(min(view.loaded_at(start_ns), view.layers // 2))",
        "split.append(min(view.loaded_at(start_ns), view.layers))",
        "the target may run all layers of a batch",
        "zigzag live_golden",
    ),
    _mutant(
        "ties go to the target", "policies",
        "to_target = max(target_ns, there_ns) < max(source_ns, there_ns)",
        "to_target = max(target_ns, there_ns) <= max(source_ns, there_ns)",
        "under stop, a batch that both instances could begin goes to the target",
        "zigzag live_golden",
    ),
    # Machine: runs in closed form
    _mutant(
        "boundary in closed form", "simcore",
        "cost = steps * self._first + self._slope * (steps * (steps - 1) >> 1)",
        "cost = steps * self._first + self._slope * (steps * steps >> 1)",
        "a run's end counts half a slope per step too many",
        "exactness segment",
    ),
    _mutant(
        "grace counted from the boundary", "simcore",
        "if steps and self._start_fixed >> FRACTION_BITS >= now_ns:",
        "if steps and self._start_fixed >> FRACTION_BITS > now_ns:",
        "a step that begins at the arrival is not the step of grace",
        "exactness vllm_schedules",
    ),
    _mutant(
        "smallest context is the largest", "simcore",
        "if alone or (self.owner != NO_REQUEST and offset < self.offset):",
        "if alone or (self.owner != NO_REQUEST and offset > self.offset):",
        "with unequal contexts, the step time is computed from the wrong request",
        "exactness rows_mixed",
    ),
    _mutant(
        "waits since the first stall", "simcore",
        "last = max(last_token_fixed, self.groups[0][0])", "last = self.groups[0][0]",
        "a preempted request that joined during a stall is removed from the wrong group",
        "exactness",
    ),
    # Data plane
    _mutant(
        "told too late", "simcore",
        "return math.ceil(at_s * NS_PER_S - SLACK_NS)", "return math.ceil(at_s * NS_PER_S - SLACK_NS) + 1",
        "the end of a transfer is reported one nanosecond late",
        "data_plane loading",
    ),
    _mutant(
        "caches before their time", "simcore",
        "under_way = [one for one, done_s in self._compiling.values() if done_s <= now_s]",
        "under_way = [one for one, done_s in self._compiling.values()]",
        "an instance finds a compile cache that another instance is still writing",
        "starts",
    ),
    _mutant(
        "a stopped start has compiled", "simcore",
        "if cache is not None and (complete or done_s <= now_s):", "if cache is not None:",
        "a start that was stopped while compiling leaves a complete cache",
        "starts",
    ),
    _mutant(
        "wakes from any host", "simcore",
        'return load.sources == (("host", gpus[0] // self._per_host),)',
        'return load.sources[0][0] == "host"',
        "a sleeping process is assumed on a host although the copy is on another host",
        "starts",
    ),
    _mutant(
        "layers of the last tenant", "simcore",
        "self.residency.clear(endpoint)", "pass",
        "a replica that is placed again still has the layers of its last load",
        "loading_places layer_runs live_exactness parts",
    ),
    _mutant(
        "followers load on", "simcore",
        "followers = [one for one in run.followers if one.open and one.needs(run)]", "followers = []",
        "a target of a stopped load waits forever",
        "loading_edges loading",
    ),
    _mutant(
        "channels that share a link as one", "simcore",
        "alone = not channel.links or any(users[link] > 1 for link in channel.links)",
        "alone = not channel.links",
        "channels behind one NIC become one flow that uses the NIC once",
        "data_plane loading_edges loading",
    ),
    _mutant(
        "standstill before all has ended", "simcore",
        "self._past += now_ns > self._settled_ns", "self._past += 1",
        "a run is declared stalled while copies or waits are about to end",
        "standstill",
    ),
    # Data-parallel groups
    _mutant(
        "a rank overtakes the slowest", "simcore",
        "behind = (first - other) // (steeper - slope) + 1",
        "behind = (first - other) // (steeper - slope) + 2",
        "coalesced steps include one step in which another rank is slower",
        "lockstep",
    ),
    _mutant(
        "no dummy steps to the end of a round", "simcore",
        "if not working and not self._asked and until_sync == STEPS_PER_SYNC:",
        "if not working and not self._asked:",
        "ranks know immediately that all ranks are done",
        "lockstep",
    ),
    _mutant(
        "a rank chooses at once", "serving",
        "skips = self.lockstep and (batch is not None or bool(self.ended or self.unseen_arrivals))",
        "skips = False",
        "a rank that chose nothing in time runs no dummy step",
        "lockstep",
    ),
    _mutant(
        "steps of others are not told", "simcore",
        "ran = report.steps + self._unreported[rank]", "ran = report.steps",
        "the steps before another rank's batch changed are not reported",
        "lockstep",
    ),
    _mutant(
        "ranks outlive each other", "simcore",
        "lost = self._groups.get(replica, (replica,))", "lost = (replica,)",
        "a group goes on when one of its ranks is lost",
        "lockstep_losses",
    ),
    # What a lost replica did before its loss
    _mutant(
        "tokens of the last run are dropped", "simcore",
        "_book_ended(machine, now_ns)", "pass",
        "gaps between tokens that a lost replica gave since its last report are missing",
        "tokens_before_losses",
    ),
    _mutant(
        "a step that is lost gives tokens", "simcore",
        "machine._joins.late.clear()", "machine._joins.settle()",
        "the step in which others join counts though its replica is lost before its end",
        "tokens_before_losses",
    ),
    _mutant(
        "steps of a lost group are dropped", "simcore",
        "self._count(steps, steps_cost(self._first, self._slope, steps))", "pass",
        "steps, dummy steps and waiting of a lost data-parallel group end with its last report",
        "tokens_before_losses",
    ),
    _mutant(
        "a lost pipeline works on", "simcore",
        "self._work -= sum([one.computing_after(now) for one in (lane, *self.order)])", "pass",
        "stages compute steps to their end though their replica is lost",
        "tokens_before_losses",
    ),
    _mutant(
        "steps of a lost pipeline are dropped", "simcore",
        "self.steps += batch.book(finished)", "batch.book(finished)",
        "steps of micro-batches since the last report of a lost replica are not counted",
        "tokens_before_losses",
    ),
    _mutant(
        "a lost pipeline keeps its plan", "simcore",
        "self.shop.stop(now_ns)", "self.shop.order.clear()",
        "tokens and work of a lost replica in stages end with its last report",
        "tokens_before_losses found_worlds",
    ),
    _mutant(
        "a lost stage works on", "simcore",
        "self.work[replica] -= free - now_fixed", "pass",
        "a lost stage replica is busy after its loss",
        "tokens_before_losses",
    ),
    _mutant(
        "the lost decode on", "serving",
        "self.ledger.decoding = 0", "pass",
        "the requests of lost virtual engines still count as decoding",
        "tokens_before_losses found_worlds",
    ),
    _mutant(
        "who sends after the end waits for ever", "simcore",
        "while self._lives and self.losses is not None and self.losses.happened:",
        "if self._lives and self.losses is not None and self.losses.happened:",
        "clients whose requests fail at the end of a run send no further ones",
        "found_worlds",
    ),
    _mutant(
        "runs that were cut short are awaited", "simcore",
        "return [timer for replica, timer in self._run_timers.items() if machines[replica].run is None]",
        "return []",
        "a run that serves nobody ends when the lost runs would have ended",
        "found_worlds",
    ),
    # QUART: key stages, copies of stages, the PID
    _mutant(
        "a stage within its target is key", "policies",
        "least = max(1.0, self.settings.key_margin * median_low(behind))",
        "least = self.settings.key_margin * median_low(behind)",
        "a growing stage becomes a key stage although no request was late there",
        "quart_corrector",
    ),
    _mutant(
        "one long pass makes a key stage", "policies",
        "delay = stage.delay_s if stage.passed >= passes else None", "delay = stage.delay_s",
        "the delay of too few requests makes a key stage",
        "quart_corrector",
    ),
    _mutant(
        "copies may use all memory", "policies",
        "limit = int(self._most_used * host.memory_bytes)", "limit = host.memory_bytes",
        "hosts keep copies above 85 % of their memory",
        "quart_placement",
    ),
    _mutant(
        "a copy that is read makes room", "policies",
        "if not copy.in_use and not (copy.model == view.model and copy.stage in stay)",
        "if not (copy.model == view.model and copy.stage in stay)",
        "KeysManager counts bytes as free that a load still reads",
        "quart_placement",
    ),
    _mutant(
        "the integral winds up", "policies",
        "if not self._anti_windup or (wanted < most and not hold):",
        "if not self._anti_windup or not hold:",
        "the integral grows while the output is cut off",
        "quart_corrector",
    ),
    _mutant(
        "the integral waits for nobody", "policies",
        "if not self._anti_windup or (wanted < most and not hold):",
        "if not self._anti_windup or wanted < most:",
        "the integral grows while requested replicas still load",
        "quart_corrector",
    ),
    _mutant(
        "the integral outlives its burst", "policies",
        "self.integral, self._last = 0.0, error", "self._last = error",
        "the integral of a past burst still adds replicas",
        "quart_corrector",
    ),
    _mutant(
        "copies are held to all memory", "serving",
        "return int(self._setup.copies_share * self._setup.hosts.memory_bytes)",
        "return self._setup.hosts.memory_bytes",
        "the invariant of copies lets a policy use more than its share",
        "drawn_quart",
    ),
    _mutant(
        "loads pin no copy of a stage", "serving",
        "self.hosts.copies.begin(now_ns, load)", "pass",
        "a copy that a load still reads may be removed",
        "stage_scaling drawn_quart",
    ),
    _mutant(
        "a copy goes with its first reader", "serving",
        "if part in leaving and not copy.pins:", "if part in leaving:",
        "a removed copy's bytes are free while another load still reads them",
        "host_cache kept_copies",
    ),
    _mutant(
        "a copy is there before its replica", "serving",
        "return self.caches.holds(host, part) and (host, part) not in self._coming",
        "return self.caches.holds(host, part)",
        "a stage loads from a replica that is itself still loading",
        "kept_copies",
    ),
    # Journal, replay, invariants, admission
    _mutant(
        "joins are not written", "serving",
        'joins = f",{_numbers(event.joins)}" if event.joins else ""', 'joins = ""',
        "the journal omits when requests joined a run",
        "journal elastic_exactness",
    ),
    _mutant(
        "replay ends with requests in flight", "serving",
        "elif in_flight:", "elif False:",
        "a truncated journal with a footer counts as complete",
        "replay",
    ),
    _mutant(
        "blocks may be lost", "serving",
        '_demand(2, held + ledger.free_blocks == total, f"KV blocks conserved on replica {replica.id}")',
        '_demand(2, held + ledger.free_blocks <= total, f"KV blocks conserved on replica {replica.id}")',
        "the invariant of KV blocks lets blocks vanish",
        "invariants",
    ),
    _mutant(
        "seats may be kept for nobody", "serving",
        '_demand(12, seats == seated, f"{seats} seats are kept on replica {engine.id}, not {seated}")',
        '_demand(12, seats >= seated, f"{seats} seats are kept on replica {engine.id}, not {seated}")',
        "the invariant of reserved requests allows reservations without a request",
        "invariants decode_seats",
    ),
    _mutant(
        "common prompts go first", "serving",
        "for owner, start, end in reversed(starts):  # the most shared part counts as used last",
        "for owner, start, end in starts:",
        "the router evicts prefixes shared by many prompts before those of a single prompt",
        "prefix_aware",
    ),
    _mutant(
        "prefix without load", "policies",
        "cost = weight * (prompt - cached) + load", "cost = weight * (prompt - cached)",
        "prefix dispatch sends every turn to one replica, however long its queue",
        "prefix_aware",
    ),
    _mutant(
        "bucket without a rim", "policies",
        "self._level = min(self._capacity, filled)", "self._level = filled",
        "after a quiet period more than burst requests are admitted at once",
        "admission",
    ),
    # Measured files and plans
    _mutant(
        "a time of 0 is a time", "servetwin",
        'sieve.leave_out(name, values == 0, "0")', "pass",
        "compare counts a TTFT that a client did not see as 0 ms",
        "unknown_times",
    ),
    _mutant(
        "gaps of chunks are gaps of tokens", "servetwin",
        "if len(gaps) < tokens - 1:", "if len(gaps) < 1:",
        "compare takes the gaps between chunks of several tokens for ITL",
        "unknown_times",
    ),
    _mutant(
        "whoever rejects is fast", "servetwin",
        "if rejected > 0 and any(limit.at_most for limit in self.limits):",
        "if rejected < 0 and any(limit.at_most for limit in self.limits):",
        "a plan meets a limit on a latency by rejecting requests",
        "plan_objective",
    ),
)  # fmt: skip
