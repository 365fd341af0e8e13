"""Properties of the fold: the same for every reader, and the same in every datacentre at last."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_actors.metadata.commands import (
    NOTHING_SEEN,
    Absent,
    Accepted,
    Alive,
    Childless,
    Copy,
    Delete,
    LogCreated,
    Put,
    Rejected,
    StampIs,
    encode,
)
from hermes_actors.metadata.state import MetadataState, Register
from hermes_actors.model.record import StoredRecord

KEYS = ("a/x", "a/y", "b/x")


def stored(offset, value, timestamp_ms):
    return StoredRecord(0, offset, timestamp_ms, None, value, ())


def fold_all(values, timestamps=None, state=None):
    state = state or MetadataState()
    for number, value in enumerate(values):
        at = state.position
        state.fold(stored(at, value, timestamps[number] if timestamps else 100 + at))
    return state


def value_of(command):
    return encode(command, 0).value


def created(dc="dc1"):
    return value_of(LogCreated(f"log-{dc}", dc))


def put(command_id, key, body=b"1", *preconditions):
    return value_of(Put(command_id, key, body, preconditions, NOTHING_SEEN))


def delete(command_id, key, *preconditions):
    return value_of(Delete(command_id, key, preconditions, NOTHING_SEEN))


keys = st.sampled_from(KEYS)
small = st.integers(0, 300)
preconditions = st.lists(
    st.builds(StampIs, keys, small)
    | st.builds(Absent, keys)
    | st.builds(Alive, keys, small)
    | st.builds(Childless, st.sampled_from(("a/", "b/", "c/"))),
    max_size=2,
).map(tuple)
ids = st.integers(0, 20).map(str)
commands = (
    st.builds(Put, ids, keys, st.binary(max_size=2), preconditions, st.just(NOTHING_SEEN))
    | st.builds(Delete, ids, keys, preconditions, st.just(NOTHING_SEEN))
    | st.tuples(ids, keys, st.none() | st.binary(max_size=2), small, small).map(
        lambda t: Copy(t[0], t[1], t[2], min(t[3:]), max(t[3:]), "dc2", "dc2", "log-dc2", t[4])
    )
)
values = st.lists(commands.map(value_of) | st.binary(max_size=12), max_size=40)


@given(values, st.integers(0, 40), st.lists(st.integers(-5, 500), min_size=41, max_size=41))
def test_folding_a_prefix_and_then_the_rest_is_folding_all(sequence, cut, timestamps):
    sequence = [created(), *sequence]
    whole = fold_all(sequence, timestamps)
    first = fold_all(sequence[:cut], timestamps)
    assert fold_all(sequence[cut:], timestamps[cut:], first).snapshot() == whole.snapshot()


@given(values, st.binary(max_size=20), st.integers(0, 40))
def test_an_undecodable_command_changes_no_register_and_is_counted(sequence, noise, at):
    noise = b"\xc1" + noise
    with_noise = [created(), *sequence]
    at = min(at, len(with_noise))
    with_noise.insert(at, noise)
    # The same log times, so that only the noise makes a difference.
    times = [100 + n for n in range(len(with_noise))]
    plain = fold_all([created(), *sequence], times[:at] + times[at + 1 :])
    noisy = fold_all(with_noise, times)
    assert noisy.canonical_bytes() == plain.canonical_bytes()
    assert noisy.undecodable == plain.undecodable + 1


def test_nothing_has_an_effect_before_the_log_is_created_and_its_first_creation_counts():
    state = fold_all([put("1", "a/x"), created(), created("dc9"), put("1", "a/y")])
    assert list(state.registers) == ["a/y"]
    assert (state.log_id, state.dc, state.registers["a/y"].dc) == ("log-dc1", "dc1", "dc1")


@given(values, keys, preconditions)
def test_a_change_is_made_exactly_if_its_preconditions_held(sequence, key, conditions):
    state = fold_all([created(), *sequence])
    held = [state.holds(each) for each in conditions]
    before = state.registers.get(key)
    folded = state.fold(stored(state.position, put("new", key, b"n", *conditions), 5))
    if all(held):
        assert isinstance(folded.outcome, Accepted)
        assert state.registers[key].body == b"n"
        assert state.registers[key].supersedes(before)
    else:
        assert folded.outcome == Rejected(conditions[held.index(False)])
        assert state.registers.get(key) == before


@given(values)
def test_childless_counts_the_living_below_a_prefix(sequence):
    state = fold_all([created(), *sequence])
    for prefix in ("a/", "b/", "c/"):
        living = [r for r in state.registers.values() if r.is_alive and r.key.startswith(prefix)]
        assert state.holds(Childless(prefix)) == (not living)


def test_the_first_outcome_for_an_id_counts_until_it_is_too_long_ago():
    state = MetadataState(command_ids_max=2)
    fold_all([created(), put("1", "a/x", b"1"), put("1", "a/x", b"2")], state=state)
    assert state.registers["a/x"].body == b"1"
    assert state.repeated == 1
    fold_all([put("2", "a/y"), put("3", "a/y"), put("1", "a/x", b"3")], state=state)
    assert state.registers["a/x"].body == b"3"
    assert state.outcome_of("2") is None


@given(st.lists(st.integers(-50, 500), min_size=2, max_size=30))
def test_stamps_grow_whatever_the_log_time_does(times):
    state = fold_all([created()])
    stamps = []
    for number, time_ms in enumerate(times):
        state.fold(stored(state.position, put(str(number), "a/x"), time_ms))
        stamps.append(state.registers["a/x"].stamp)
    assert all(later > earlier for earlier, later in pairwise(stamps))


def test_a_stamp_is_above_every_copied_stamp():
    copy = Copy("c", "b/x", None, 7_000, 9_000, "dc2", "dc2", "log-dc2", 0)
    state = fold_all([created(), value_of(copy), put("1", "a/x")])
    assert state.registers["a/x"].stamp == 9_001


def test_equal_stamps_are_ordered_by_datacentre_whatever_the_bodies():
    ours = Register("a/x", 0, 5, "dc1", b"z")
    theirs = Register("a/x", 0, 5, "dc2", b"a")
    assert theirs.supersedes(ours)
    assert not ours.supersedes(theirs)


class Datacentres(RuleBasedStateMachine):
    """Three logs, changes in each, and copies that run ahead, lag, repeat and get mixed up."""

    DCS = ("dc1", "dc2", "dc3")

    def __init__(self):
        super().__init__()
        self.states = {dc: fold_all([created(dc)]) for dc in self.DCS}
        self.accepted = {dc: [] for dc in self.DCS}
        self.copied_up_to = {(a, b): 0 for a in self.DCS for b in self.DCS if a != b}
        self.lives_ended = {}
        self.count = 0

    def fold(self, dc, value, time_ms):
        state = self.states[dc]
        offset = state.position
        folded = state.fold(stored(offset, value, time_ms))
        if folded.is_accepted_here:
            self.accepted[dc].append((offset, folded.changed))
        return folded

    @rule(dc=st.sampled_from(DCS), key=keys, time_ms=st.integers(0, 400), is_put=st.booleans())
    def change(self, dc, key, time_ms, is_put):
        self.count += 1
        before = self.states[dc].registers.get(key)
        name = f"{dc}-{self.count}"
        value = put(name, key, name.encode()) if is_put else delete(name, key)
        folded = self.fold(dc, value, time_ms)
        if not is_put and isinstance(folded.outcome, Accepted):
            # Every body of the ended life that this datacentre knew must never be seen again.
            ended = self.lives_ended.setdefault((dc, key), set())
            ended.add(before.body)

    def copy(self, source, target, at):
        offset, register = self.accepted[source][at]
        command = Copy(
            "copy",
            register.key,
            register.body,
            register.incarnation,
            register.stamp,
            register.dc,
            source,
            f"log-{source}",
            offset,
        )
        self.fold(target, value_of(command), 0)

    @rule(source=st.sampled_from(DCS), to=st.sampled_from(DCS), count=st.integers(1, 5))
    def copy_on(self, source, to, count):
        if source == to:
            return
        done = self.copied_up_to[source, to]
        for at in range(done, min(done + count, len(self.accepted[source]))):
            self.copy(source, to, at)
            self.copied_up_to[source, to] = at + 1

    @precondition(lambda self: any(self.accepted.values()))
    @rule(data=st.data())
    def copy_any_again_or_early(self, data):
        source = data.draw(st.sampled_from([dc for dc in self.DCS if self.accepted[dc]]))
        target = data.draw(st.sampled_from([dc for dc in self.DCS if dc != source]))
        self.copy(source, target, data.draw(st.integers(0, len(self.accepted[source]) - 1)))

    @invariant()
    def nothing_deleted_comes_back(self):
        for (dc, key), bodies in self.lives_ended.items():
            register = self.states[dc].registers[key]
            assert not register.is_alive or register.body not in bodies

    def teardown(self):
        for source, target in self.copied_up_to:
            for at in range(len(self.accepted[source])):
                self.copy(source, target, at)
        self.nothing_deleted_comes_back()
        one, *others = self.states.values()
        assert {each.canonical_bytes() for each in others} == {one.canonical_bytes()}
        assert {each.digest for each in others} == {one.digest}


Datacentres.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestDatacentres = Datacentres.TestCase


def test_a_deletion_beats_a_change_made_at_the_same_time_elsewhere_even_a_later_one():
    dc1, dc2 = fold_all([created("dc1")]), fold_all([created("dc2")])
    first = dc1.fold(stored(1, put("1", "a/x"), 10)).changed

    def copy(register, source):
        return value_of(
            Copy(
                "c",
                register.key,
                register.body,
                register.incarnation,
                register.stamp,
                register.dc,
                source,
                "log",
                1,
            )
        )

    dc2.fold(stored(1, copy(first, "dc1"), 11))
    deletion = dc1.fold(stored(2, delete("2", "a/x"), 20)).changed
    later = dc2.fold(stored(2, put("3", "a/x", b"later"), 900)).changed
    dc1.fold(stored(3, copy(later, "dc2"), 901))
    dc2.fold(stored(3, copy(deletion, "dc1"), 901))
    assert dc1.registers["a/x"] == dc2.registers["a/x"] == deletion
    again = dc2.fold(stored(4, put("4", "a/x", b"again"), 0)).changed
    assert (again.incarnation, again.is_alive) == (deletion.stamp, True)
