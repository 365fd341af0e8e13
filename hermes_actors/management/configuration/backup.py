"""A backup of all metadata, and its restoring. Each register keeps its incarnation and stamp, so
that topics keep their log topics and schemas their ids.
"""

from typing import Any

import msgspec
import trio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Stored
from hermes_actors.management.access.roles import Caller, sees_secrets
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.audit import BROKER, Author, author_header, log_change, present_author
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Copy, Stamp, Text, encode, put
from hermes_actors.metadata.keys import (
    ACTIVATION,
    HOLDER,
    REDRIVE,
    SEEK,
    key,
    parse_key,
    subscription_of,
)
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.resources import resource_of
from hermes_actors.metadata.state import Register
from hermes_actors.metadata.view import lacking_in
from hermes_actors.metadata.workload import DRAIN
from hermes_actors.model.names import NAME_RULE, group_problem, is_name_part, subscription_problem
from hermes_actors.model.topic import Ack

RESTORED = "restored"

_RUNTIME = frozenset((ACTIVATION, HOLDER, SEEK, REDRIVE, DRAIN, RESTORED))
"""Kinds of registers that say what the lost cluster was doing."""

_AHEAD_MS = 86_400_000
_ORIGIN = "[backup]"
_APPENDED_AT_ONCE = 100


class Saved(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a backup: a register. `body` is JSON, byte for byte."""

    key: Text
    incarnation: Stamp
    stamp: Stamp
    dc: Text
    body: msgspec.Raw

    def __post_init__(self) -> None:
        if self.incarnation > self.stamp:
            raise ValueError("its incarnation is above its stamp")


class Backups:
    """Backups of one datacentre's metadata. All methods are trio coroutines."""

    def __init__(self, metadata: Metadata, changes: Changes) -> None:
        self._metadata = metadata
        self._changes = changes

    async def registers(self, caller: Caller) -> list[Register]:
        """All metadata, a register in each line, secrets included. Raises Refused."""
        if not sees_secrets(caller):
            raise Refused(
                "A backup holds secrets, so it needs an administrator's account; the operator "
                "enables accounts with management.authentication.enabled",
                ErrorCode.PERMISSION_DENIED,
            )
        return [
            each
            for each in self._metadata.state.registers.values()
            if each.is_alive and each.key.partition("/")[0] not in _RUNTIME
        ]

    async def restore(self, lines: bytes) -> dict[str, Any]:
        """Write the registers of these lines of a backup that are missing here, or older. Answers
        how many were `restored`, and how many are `kept` because they are the same here, or newer.

        The other datacentres follow within a minute. Raises Refused and Unavailable: then some may
        have been restored, and the same request continues.
        """
        self._changes.require_current()
        given, now_ms = [], self._metadata.clock.now_ms()
        for number, line in enumerate(lines.split(b"\n"), 1):
            if line.strip():
                given.append(_decoded(line, number, now_ms))
                await trio.lowlevel.checkpoint()
        missing = await lacking_in(self._metadata, given)
        for at in range(0, len(missing), _APPENDED_AT_ONCE):
            await self._append(missing[at : at + _APPENDED_AT_ONCE])
        counts = {"restored": len(missing), "kept": len(given) - len(missing)}
        # All records before this one have been folded when it is.
        marker = key(RESTORED, self._metadata.dc)
        await self._changes.attempt(put(marker, msgspec.json.encode(counts)))
        return counts

    async def _append(self, registers: list[Register]) -> None:
        metadata, author = self._metadata, present_author() or Author(BROKER)
        headers = (author_header(author),)
        records = [
            encode(
                Copy(
                    metadata.ids.message_id(),
                    each.key,
                    each.body,
                    each.incarnation,
                    each.stamp,
                    each.dc,
                    _ORIGIN,
                    _ORIGIN,
                    -1,
                ),
                metadata.clock.now_ms(),
                headers,
            )
            for each in registers
        ]
        outcomes = await metadata.log.append(metadata.topic, 0, records, Ack.ALL)
        for each, outcome in zip(registers, outcomes, strict=True):
            if not isinstance(outcome, Stored):
                raise Unavailable(f"The restore is incomplete: {outcome.reason}; restore again")
            log_change(author, each.key, None, each.body)


def as_lines(registers: list[Register]) -> bytes:
    """The registers as lines of a backup."""
    return b"".join(
        msgspec.json.encode(
            Saved(each.key, each.incarnation, each.stamp, each.dc, msgspec.Raw(each.body or b""))
        )
        + b"\n"
        for each in registers
    )


def _decoded(line: bytes, number: int, now_ms: int) -> Register:
    at = f"Line {number} is not part of a backup"
    try:
        saved = msgspec.json.decode(line, type=Saved)
        at = f"Line {number}, {saved.key}, cannot be restored"
        register = Register(saved.key, saved.incarnation, saved.stamp, saved.dc, bytes(saved.body))
        if problem := _problem_of(register, now_ms):
            raise ValueError(problem)
    except (msgspec.DecodeError, ValueError) as error:
        raise Refused(f"{at}: {error}", ErrorCode.FORMAT_ERROR) from error
    return register


def _problem_of(register: Register, now_ms: int) -> str:
    """Why this register must not come into the metadata; empty string if it may."""
    parsed = parse_key(register.key)
    names, resource = parsed.names, resource_of(register.key)
    if parsed.kind in _RUNTIME or resource == register.key or str(parsed) != register.key:
        return "backups have no such key"
    if register.stamp > now_ms + _AHEAD_MS:
        return "its stamp is more than a day ahead of this node's clock"
    problem = ""
    if resource.startswith(("groups/", "topics/", "workload-constraints/")):
        problem = group_problem(names[0], NAME_RULE)
        if not all(map(is_name_part, names)) or "." in "".join(names[1:2]):
            problem = problem or f"names must match {NAME_RULE}, a topic's without dots"
    if subscription := subscription_of(parsed):
        problem = problem or subscription_problem(subscription)
    catalog = Catalog()
    catalog.apply(register)
    return problem or catalog.undecodable.get(register.key, "")
