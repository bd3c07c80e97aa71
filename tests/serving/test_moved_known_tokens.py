"""A request that moved knows its prompt and every token that it got anywhere, however it goes on."""

from serving.vocabulary.actions import Preempt, Run
from tests.worlds.migration_rig import WHO, MigrationRig

PROMPT = 30


def moved(**more: int) -> tuple[MigrationRig, int]:
    """Its migration is committed; how many tokens it has: one per step that the source has run since."""
    rig = MigrationRig(prompt=PROMPT, last_stage_blocks=16, **more)  # one token, of its prompt
    rig.look(), rig.boundary()  # stage 0
    rig.step(0), rig.step(0)
    rig.come(), rig.boundary()  # the last stage
    rig.come()
    assert rig.migrations.log.records[-1].outcome == "committed"
    return rig, 5


def chunk_of_its_own(rig: MigrationRig) -> tuple[int, int, int]:
    """The prompt chunk that the last pass has of it."""
    ((chunk,),) = [
        [one for one in run.chunks if one[0] == WHO] for run in rig.actions if isinstance(run, Run)
    ]
    return chunk


def test_it_decodes_behind_all_that_it_has() -> None:
    rig, tokens = moved()
    rig.step(1)  # the step that was under way without it
    assert rig.destination.ledger.context_tokens(WHO) == PROMPT + tokens
    rig.step(1), rig.step(1)
    assert rig.destination.ledger.context_tokens(WHO) == PROMPT + tokens + 2


def test_preempted_where_it_has_come_to_it_computes_all_that_it_has() -> None:
    rig, tokens = moved(blocks=24, other_prompt=30)
    rig.step(1)
    while not any(isinstance(one, Preempt) for one in rig.actions):
        rig.step(1)
        tokens += 1
    (victim,) = rig.destination.waiting
    assert victim.id == WHO and victim.was_preempted and tokens > 5
    assert (victim.known_tokens, victim.computed) == (PROMPT + tokens, 0)
    rig.step(1, 1)  # the other one ends
    assert chunk_of_its_own(rig) == (WHO, 0, PROMPT + tokens)


def test_who_moves_without_its_kv_computes_all_that_it_has() -> None:
    rig = MigrationRig("recompute", prompt=PROMPT)
    rig.look(), rig.boundary()
    (progress,) = rig.destination.waiting
    assert progress.moved and (progress.known_tokens, progress.computed) == (PROMPT + 2, 0)
    rig.step(1)
    assert chunk_of_its_own(rig) == (WHO, 0, PROMPT + 2)
    rig.step(1)
    assert rig.destination.ledger.context_tokens(WHO) == PROMPT + 3


def test_who_resumes_at_its_source_has_what_it_had() -> None:
    rig = MigrationRig(prompt=PROMPT)
    rig.look(), rig.boundary(), rig.come(), rig.boundary()
    rig.come("link lost")  # in the last stage
    assert rig.source.ledger.context_tokens(WHO) == PROMPT + 3
    rig.step(0)
    assert rig.source.ledger.context_tokens(WHO) == PROMPT + 4
