"""Lines about migrations in the stories of requests and instances."""

from servetwin.story.books import Books
from servetwin.story.line import Lines, StoryLine, count
from servetwin.story.tale import Tale, decoded
from serving.vocabulary.actions import Detach, Migrate

_SAID = {
    "begun": "a migration from instance {0} to {1} begins",
    "committed": "its migration from instance {0} to {1} is complete",
    "aborted": "its migration from instance {0} to {1} is aborted",
}


def migrates(tale: Tale, books: Books, now_ns: int, action: Migrate) -> Lines:
    """Report the phase of this request's migration."""
    if action.request == tale.id:
        yield StoryLine(now_ns, _SAID[action.phase].format(action.source, action.target), action.reason)


def leaves_batch(tale: Tale, books: Books, now_ns: int, action: Detach) -> Lines:
    """Report that the request left its batch; it decodes again at its destination or at its source."""
    if action.request == tale.id and tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        tale.enter("migration", now_ns)
        what = f"leaves the batch of instance {action.replica} with {count(tale.mine.made, 'token')}"
        yield StoryLine(now_ns, what, action.reason)
