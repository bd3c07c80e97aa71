"""The control plane's book of loaded layers: by example, through loads, and against a set of layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.parameters.loads import Loads
from serving.parameters.residency import Residency
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part
from tests.worlds.elastic_world import MS, Setting, Told
from tests.worlds.told_systems import BOTH, WHOLE, both

STAGE = Part("m", 8, 16)
HERE: Endpoint = ("replica", 3)


def loads(part: Part = STAGE, target: Endpoint = HERE) -> Loads:
    found = Loads()
    found.begin(Load(0, part.model, (("ssd", 0),), (target,), (), True, True, "", layers=part.layers))
    return found


def test_a_load_writes_which_layers_have_come() -> None:
    found = loads()
    book = found.residency
    assert (book.layers(HERE, STAGE), book.has(HERE, STAGE)) == (0, False)
    found.loaded(Loaded(0, 0, 3, False, 8))
    assert book.layers(HERE, STAGE) == 3
    assert book.has_layers(HERE, "m", 8, 11) and book.has_layers(HERE, "m", 9, 10)
    assert not book.has_layers(HERE, "m", 8, 12) and not book.has_layers(HERE, "m", 0, 3)
    assert not book.has_layers(HERE, "other", 8, 11) and not book.has_layers(("replica", 4), "m", 8, 11)
    found.loaded(Loaded(0, 0, 8, False, 8))
    assert book.layers(HERE, STAGE) == 8 and not book.has(HERE, STAGE), "the head may be missing"
    found.loaded(Loaded(0, 0, 8, True, 8))
    assert book.has(HERE, STAGE)


def test_a_report_of_other_layers_is_refused() -> None:
    with pytest.raises(AssertionError, match="load 0 from layer 0 on, and it begins at 8"):
        loads().loaded(Loaded(0, 0, 3, False))
    with pytest.raises(AssertionError, match="a layer that was whole is not"):
        loads().loaded(Loaded(0, 0, 9, False, 8))


def test_what_was_stopped_stays_on_gpus_and_not_in_host_memory() -> None:
    found = loads()
    found.ended_early(LoadStopped(0, 0, 5, "asked to", 8))
    assert found.residency.layers(HERE, STAGE) == 5
    found = loads(target=("host", 1))
    found.loaded(Loaded(0, 0, 8, True, 8))
    assert not found.residency.has(("host", 1), STAGE), "the caches say whether a copy stays"


def test_reports_of_a_lost_replica_change_nothing() -> None:
    found = loads()
    found.residency.clear(HERE)
    found.loaded(Loaded(0, 0, 8, True, 8))
    assert not found.residency.has(HERE, STAGE)


def test_an_instance_has_its_layers_from_its_load_to_its_reclaim() -> None:
    told = both(park_ns=0)
    told.arrive(0, 5)
    book, stop = told.deployment.residency, ("replica", 0)
    seen = [book.layers(stop, WHOLE)]
    for layers in (1, 3):
        told.fact(Loaded(0, 0, layers, False), 100 * MS)
        seen.append(book.layers(stop, WHOLE))
    assert seen == [0, 1, 3] and not book.has(stop, WHOLE)
    told.loaded(0)
    assert book.has(stop, WHOLE)


def test_those_of_the_start_have_theirs() -> None:
    told = Told(Setting(start=dict.fromkeys(BOTH, 2)))
    assert all(told.deployment.residency.has(("replica", number), WHOLE) for number in range(2))
    told.lose(1)
    assert not told.deployment.residency.has(("replica", 1), WHOLE)


parts = st.tuples(st.integers(0, 3), st.integers(1, 4)).map(lambda one: Part("m", one[0], one[0] + one[1]))
steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "came", "put", "clear"]), st.integers(0, 1), parts, st.integers(0, 4)
    ),
    max_size=12,
)


@given(steps=steps, first=st.integers(0, 6), count=st.integers(1, 4))
def test_the_book_is_a_set_of_layers_of_every_part(
    steps: list[tuple[str, int, Part, int]], first: int, count: int
) -> None:
    book, sets = Residency(), dict[tuple[int, Part], set[int]]()
    for what, number, part, layers in steps:
        stop, there = ("replica", number), sets.get((number, part))
        if what == "begin":
            book.begin(stop, part)
            sets[number, part] = set()
        elif (
            what == "came"
            and (there is None or len(there) <= layers <= len(part))
            and not book.has(stop, part)
        ):
            book.came(stop, part, layers, False)
            if there is not None and len(there) < layers:
                there.update(range(part.first, part.first + layers))
        elif what == "put":
            book.put(stop, part)
            sets[number, part] = set(range(part.first, part.last))
        elif what == "clear":
            book.clear(stop)
            sets = {key: one for key, one in sets.items() if key[0] != number}
    for (number, part), there in sets.items():
        assert book.layers(("replica", number), part) == len(there)
    wanted = set(range(first, first + count))
    for number in range(2):
        expected = any(wanted <= there for (one, _), there in sets.items() if one == number)
        assert book.has_layers(("replica", number), "m", first, first + count) == expected
