"""What is told of migrations: to the story of a request, and to that of an instance."""

from experiments.story.books import Books
from experiments.story.line import Lines, StoryLine, count
from experiments.story.tale import Tale, decoded
from serving.vocabulary.actions import Detach, Migrate

_SAID = {
    "begun": "a migration from instance {0} to {1} begins",
    "committed": "its migration from instance {0} to {1} is complete",
    "aborted": "its migration from instance {0} to {1} is aborted",
}


def migrates(tale: Tale, books: Books, now_ns: int, action: Migrate) -> Lines:
    """What became of a migration of this request."""
    if action.request == tale.id:
        yield StoryLine(now_ns, _SAID[action.phase].format(action.source, action.target), action.reason)


def leaves_batch(tale: Tale, books: Books, now_ns: int, action: Detach) -> Lines:
    """It decodes no more until it goes on elsewhere, or where it was."""
    if action.request == tale.id and tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        tale.enter("migration", now_ns)
        what = f"leaves the batch of instance {action.replica} with {count(tale.mine.made, 'token')}"
        yield StoryLine(now_ns, what, action.reason)
