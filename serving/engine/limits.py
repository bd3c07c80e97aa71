"""What others set on an engine: limits on its requests, and its batcher. Requests that run go on."""

from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState
from serving.protocols.batch import Batcher
from serving.vocabulary.actions import Action


def limit_decoding(engine: Engine, max_num_seqs: int) -> None:
    """Allow at most this many requests to decode there at once."""
    engine.max_num_seqs = max_num_seqs


def use_batcher(engine: Engine, batcher: Batcher) -> Batcher:
    """Let this batcher choose from the next pass on; returns the one before it."""
    before, engine.batcher = engine.batcher, batcher
    return before


def limit_running(engine: Engine, most: int, now_ns: int, actions: list[Action]) -> None:
    """Admit requests only while fewer than ``most`` run.

    An asynchronous engine sees the limit when it sees a request that arrives now.
    """
    more = most > engine.view.most_running
    if engine.asynchronous and engine.state in AT_WORK:
        engine.new_limit = now_ns, most
    else:
        engine.view.most_running = most
    if more and engine.state is EngineState.RUNNING and not engine.interruptible:
        engine.cut_run(actions)  # it was chosen when no more could be admitted
