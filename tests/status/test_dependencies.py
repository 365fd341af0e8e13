"""Probes' answers, by how a node's dependencies fare."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.status.dependencies import (
    LIVE,
    PROBES,
    READY,
    STARTED,
    Dependency,
    notices,
    probed,
    reasons,
)

DEPENDENCIES = st.lists(
    st.builds(
        Dependency,
        st.sampled_from("abc"),
        st.sampled_from(["", "away", "two\n[+]lines"]),
        st.booleans(),
    )
)


@given(DEPENDENCIES, st.booleans())
def test_a_process_that_answers_is_alive_whatever_it_lacks(found, is_started):
    assert probed(LIVE, found, is_started=is_started).status == 200


@given(DEPENDENCIES, st.booleans())
def test_it_is_ready_while_nothing_is_in_trouble_that_it_needs(found, is_started):
    answer = probed(READY, found, is_started=is_started)
    assert (answer.status == 200) == all(not each.trouble for each in found if each.is_needed)
    assert (answer.status == 200) == (not reasons(found))


@given(DEPENDENCIES, st.booleans())
def test_the_start_is_over_once_and_for_all(found, is_started):
    assert probed(STARTED, found, is_started=is_started).status == (200 if is_started else 503)


@given(DEPENDENCIES)
def test_each_trouble_is_told_once_as_a_reason_or_as_a_notice(found):
    told = reasons(found) + notices(found)
    assert sorted(told) == sorted(each.told for each in found if each.trouble)


@given(DEPENDENCIES)
def test_each_dependency_has_a_line(found):
    for path in set(PROBES) - {LIVE}:
        assert len(probed(path, found).text.splitlines()) == len(found) + 1


def test_the_text_reads_as_that_of_kubernetes_own_probes():
    found = [
        Dependency("metadata", is_needed=True),
        Dependency("log", "Kafka of dc1: the connection was refused", is_needed=True),
        Dependency("log dc2", "it does not answer"),
    ]
    answer = probed(READY, found)
    assert answer.status == 503
    assert answer.text.splitlines() == [
        "[+]metadata ok",
        "[-]log: Kafka of dc1: the connection was refused",
        "[!]log dc2: it does not answer (not needed)",
        "readyz check failed",
    ]
    assert probed(READY, found[::2]).text.endswith("\nreadyz check passed\n")
