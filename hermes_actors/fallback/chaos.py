"""A topic's chaos experiments: appends that are delayed or fail on purpose. Pure."""

import random
from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.model.topic import Chaos, ChaosMode, ChaosPolicy


class Strike(Struct, frozen=True):
    """The effect of an experiment on an append: a delay, and then perhaps a failure."""

    delay_s: float
    fails: bool


def roll(chaos: Chaos, dcs: Sequence[str], rng: random.Random) -> dict[str, Strike]:
    """Return the strikes on the appends of one batch, by datacentre; a datacentre without a strike
    is absent.

    GLOBAL: one roll for all datacentres, with one policy. DATACENTER: a roll for each datacentre
    that has a policy. The delay is uniform between the policy's two bounds, which may be equal.
    """
    if chaos.mode is ChaosMode.GLOBAL:
        policy = chaos.global_policy
        if policy is None or not _hits(policy, rng):
            return {}
        return {dc: _strike(policy, rng) for dc in dcs}
    if chaos.mode is ChaosMode.DATACENTER:
        policies = chaos.datacenter_policies
        return {
            dc: _strike(policies[dc], rng)
            for dc in dcs
            if dc in policies and _hits(policies[dc], rng)
        }
    return {}


def _hits(policy: ChaosPolicy, rng: random.Random) -> bool:
    return rng.random() * 100 < policy.probability


def _strike(policy: ChaosPolicy, rng: random.Random) -> Strike:
    first, last = sorted((policy.delay_from, policy.delay_to))
    return Strike(rng.uniform(first, last) / 1_000, policy.complete_with_error)
