"""Whatever is appended, by whom and when: one leader for a term, one owner for a partition, the
rate never twice, and all readers agree.

A story is several nodes that read late, are paused, are counted out and come back, and appended
records that are late, double, stale or of nobody; the log's clock runs, stands and steps. After
each step it is looked at what every node may be doing by what it has read.
"""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    RateState,
    Release,
    Snapshot,
    Stopping,
    Target,
    TaskLoad,
    TermClaim,
    Undecodable,
    decode,
    encode,
)
from hermes_actors.coordination.reasons import Reason
from hermes_actors.coordination.state import DEPARTED_MAX, MOVES_MAX, CoordinationState
from hermes_actors.coordination.values import FENCE_S, NOTHING

SUBSCRIPTIONS = ("g.t$one", "g.t$two")
PARTITIONS = 4
SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
STEPS = 150
MEANINGLESS = (
    None,
    Heartbeat("stranger", 1),
    Leave("stranger"),
    Stopping("stranger"),
    TermClaim("stranger", 1),
    Plan("stranger", 1, -1, ()),
    Loads("stranger", 1.0, 1.0, {}),
    Release("stranger", SUBSCRIPTIONS[0], 1),
    Snapshot("stranger", 9, 3, b""),
    Join("", "node"),
    Join("nobody", "node", -1.0),
)


class Life:
    """A node in one of its lives: what it has read, and until when it may act by that."""

    def __init__(self, boot):
        self.boot = boot
        self.state = CoordinationState()
        self.sent_s = {}
        self.open_until_s = float("-inf")
        self.heard_s = float("-inf")
        self.paused_until_s = 0.0
        self.released = []

    @property
    def is_over(self):
        return any(departed.boot == self.boot for departed in self.state.departed)

    def acts_on(self, name):
        """The grant by which it may be pushing, if its lease is open."""
        grant = self.state.grants_of(self.boot).get(name)
        return None if grant is None or (name, grant.epoch) in self.released else grant


class Story:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.log = []
        self.truth = CoordinationState()
        self.stopping_ms = {}
        self.now_s = 0.0
        self.skew_ms = 0
        self.stepped_s = 0.0
        self.number = 0
        self.lives = [Life(f"boot-{number}") for number in range(4)]
        self.leaders = {}
        self.snapshots = [CoordinationState()]

    def run(self):
        for _ in range(STEPS):
            self.now_s += self.rng.uniform(0.02, 0.4)
            self._step_the_clock()
            for number, life in enumerate(self.lives):
                if life.paused_until_s <= self.now_s:
                    self._let_act(number, life)
            if self.rng.random() < 0.1:
                self._append(self.rng.choice(MEANINGLESS))
            if self.rng.random() < 0.03:
                self.snapshots.append(CoordinationState.restored(self.truth.snapshot()))
            self._check()
        self._check_that_all_agree()

    # What happens.

    def _step_the_clock(self):
        # The lease is longer than the fence by one step of a second: a second step within it is
        # more than this stands.
        if self.now_s - self.stepped_s > 4.0 and self.rng.random() < 0.05:
            self.skew_ms = self.rng.choice([-3_600_000, -500, 0, 700, 86_400_000])
            self.stepped_s = self.now_s

    def _let_act(self, number, life):
        rng = self.rng
        if rng.random() < 0.02:
            life.paused_until_s = self.now_s + rng.uniform(0.2, 7.0)
            return
        if rng.random() < 0.5:
            self._read(life, rng.choice([1, 5, 1_000]))
        if self.now_s - life.heard_s >= 0.5:
            self._be_heard(number, life)
        if life.is_over:
            self.lives[number] = Life(f"{life.boot}+")
            return
        if not life.state.leader and rng.random() < 0.3:
            self._append(TermClaim(life.boot, life.state.term + 1))
        if rng.random() < (0.3 if life.state.leader == life.boot else 0.01):
            self._plan(life)
        for name in SUBSCRIPTIONS:
            must = life.state.must_release(life.boot, name)
            if rng.random() < (0.4 if must else 0.01):
                self._release(life, name)
        if life.released and rng.random() < 0.1:
            name, epoch = rng.choice(life.released)
            self._append(Release(life.boot, name, epoch))
        if rng.random() < 0.02:
            tasks = {name: TaskLoad(rng.random(), 10.0, 0.01, 0.5) for name in SUBSCRIPTIONS}
            self._append(Loads(life.boot, 0.1, 2.0, tasks))
        if rng.random() < 0.005:
            self._append(Stopping(life.boot))
        member = life.state.members.get(life.boot)
        if rng.random() < (0.1 if member is not None and member.is_stopping else 0.003):
            self._append(Leave(life.boot))
            self.lives[number] = Life(f"{life.boot}+")

    def _be_heard(self, number, life):
        self.number += 1
        life.heard_s = life.sent_s[self.number] = self.now_s
        if life.boot not in life.state.members:
            self._append(Join(life.boot, f"node-{number}"))
        self._append(Heartbeat(life.boot, self.number))

    def _plan(self, life):
        state = life.state
        assignments = tuple(
            self._assignment(name, state.targets_of(name)) for name in self._some_subscriptions()
        )
        said = Plan(life.boot, state.term, state.plan_offset, assignments)
        truth = self.truth
        before = self._owners_to_be()
        is_valid = said.boot == truth.leader and said.base == truth.plan_offset
        self._append(said)
        if not is_valid:
            assert self._owners_to_be() == before

    def _assignment(self, name, before):
        rng = self.rng
        if before and rng.random() < 0.5:
            return Assignment(
                name, tuple(Target(t.boot, t.partitions, rng.choice(SHARES)) for t in before)
            )
        owners = rng.sample([life.boot for life in self.lives], rng.randint(0, 3))
        owner_of = [rng.choice([*owners, None]) for _ in range(PARTITIONS)]
        divided = {
            boot: tuple(p for p in range(PARTITIONS) if owner_of[p] == boot) for boot in owners
        }
        targets = [
            Target(boot, partitions, rng.choice(SHARES))
            for boot, partitions in divided.items()
            if partitions
        ]
        return Assignment(name, tuple(targets))

    def _some_subscriptions(self):
        return self.rng.sample(SUBSCRIPTIONS, self.rng.randint(1, 2))

    def _release(self, life, name):
        grant = life.state.grants_of(life.boot).get(name)
        if grant is not None and (name, grant.epoch) not in life.released:
            life.released.append((name, grant.epoch))
            self._append(Release(life.boot, name, grant.epoch, RateState("adapt", 5.0)))

    # What is always so.

    def _check(self):
        truth = self.truth
        acting = [life for life in self.lives if self.now_s < life.open_until_s]
        for life in acting:
            assert life.boot in truth.members
        for name in SUBSCRIPTIONS:
            grants = truth.grants(name)
            owned = [partition for grant in grants for partition in grant.partitions]
            assert len(set(owned)) == len(owned)
            assert len({grant.boot for grant in grants}) == len(grants)
            assert all(grant.boot in truth.members for grant in grants)
            # What began to be its own while it was stopping.
            for grant in grants:
                if truth.members[grant.boot].is_stopping:
                    since_ms = self.stopping_ms.setdefault(grant.boot, truth.clock_ms)
                    assert grant.since_log_ms <= since_ms
            acts = {life: grant for life in acting if (grant := life.acts_on(name))}
            pushed = [partition for grant in acts.values() for partition in grant.partitions]
            assert len(set(pushed)) == len(pushed), "two nodes push a partition"
            used = sum(life.state.share_of(name, life.boot) for life in acts)
            assert used <= 1.0 + 1e-9, "the rate is used twice"
        for state in (truth, *(life.state for life in self.lives)):
            if state.leader:
                assert self.leaders.setdefault(state.term, state.leader) == state.leader
        assert len(truth.moves) <= MOVES_MAX
        assert len(truth.departed) <= DEPARTED_MAX
        assert set(truth.subscriptions) <= set(SUBSCRIPTIONS)

    def _check_that_all_agree(self):
        for state in (*self.snapshots, *(life.state for life in self.lives)):
            for offset in range(state.position, len(self.log)):
                state.apply(offset, *self.log[offset])
            assert state == self.truth

    def _owners_to_be(self):
        truth = self.truth
        return truth.plan_offset, [truth.targets_of(name) for name in SUBSCRIPTIONS]

    # How it is done.

    def _append(self, said):
        record = (1_700_000_000_000 + int(self.now_s * 1_000) + self.skew_ms, said)
        self.log.append(record)
        return self.truth.apply(len(self.log) - 1, *record)

    def _read(self, life, records):
        at = life.state.position
        for offset in range(at, min(at + records, len(self.log))):
            timestamp_ms, said = self.log[offset]
            life.state.apply(offset, timestamp_ms, said)
            is_own = isinstance(said, Heartbeat) and said.boot == life.boot
            if is_own and life.boot in life.state.members:
                until_s = life.sent_s[said.number] + FENCE_S
                life.open_until_s = max(life.open_until_s, until_s)
            if life.is_over:
                life.open_until_s = float("-inf")


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_no_two_own_a_partition_use_the_rate_twice_or_lead_and_all_readers_agree(seed):
    Story(seed).run()


@given(said=st.sampled_from(MEANINGLESS), seed=st.integers(0, 100))
def test_what_means_nothing_changes_nothing(said, seed):
    story = Story(seed)
    story.now_s = 1.0
    for number, life in enumerate(story.lives):
        story._be_heard(number, life)
    story._append(TermClaim("boot-0", 1))
    story._read(story.lives[0], 100)
    story._plan(story.lives[0])
    before = CoordinationState.restored(story.truth.snapshot())
    assert story._append(said) is NOTHING
    before.position += 1
    assert story.truth == before


@given(
    gaps=st.lists(st.integers(-10_000_000, 10_000_000), max_size=60),
    data=st.data(),
)
def test_nobody_who_is_heard_each_half_second_expires_whatever_the_clock_does(gaps, data):
    """Between two heartbeats of a node there are two other records at most: three steps."""
    state, at_ms, offset = CoordinationState(), 0, 0
    for boot in ("a", "b"):
        state.apply(offset, at_ms, Join(boot, boot))
        offset += 1
    for gap in gaps:
        at_ms += gap
        boot = "ab"[offset % 2]
        state.apply(offset, at_ms, Heartbeat(boot, offset))
        offset += 1
    assert set(state.members) == {"a", "b"}


scalars = st.sampled_from([None, True, -1, 0, 7, 1.5, -0.5, "", "a", "g.t$s", 10**30])
values = scalars | st.lists(scalars, max_size=3) | st.just({}) | st.just({"g.t$s": [1, 2]})
tags = st.sampled_from(
    ["join", "heartbeat", "loads", "leave", "claim", "plan", "release", "snapshot", "x"]
)


@given(
    records=st.lists(
        st.builds(lambda tag, rest: [tag, *rest], tags, st.lists(values, max_size=5)), max_size=20
    )
)
def test_records_of_wrong_types_make_no_owner_and_no_leader(records):
    state = CoordinationState()
    state.apply(0, 0, Join("a", "node-a"))
    for number, record in enumerate(records):
        try:
            said = decode(msgspec.json.encode(record))
        except Undecodable:
            said = None
        state.apply(number + 1, number, said)
        assert not any(state.grants(name) for name in state.subscriptions)
    assert CoordinationState.restored(state.snapshot()) == state


@given(seed=st.integers(0, 2**32))
def test_a_record_is_what_was_said(seed):
    rng = random.Random(seed)
    reasons = (Reason("new", {"owners": 1}),)
    said = Plan(
        "boot",
        rng.randrange(9),
        rng.randrange(99),
        (Assignment("g.t$s", (Target("boot", (0, 3), rng.random()),), reasons),),
    )
    assert decode(encode(said, 0).value) == said
