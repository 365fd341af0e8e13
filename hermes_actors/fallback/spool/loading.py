"""Loads what an earlier process left in a spool: entries that are not done. Damage is set aside.

All of it blocks, and runs in a thread.
"""

import logging
from collections import Counter
from contextlib import suppress

from msgspec import Struct, field

from hermes_actors.errors import DamageFound, StartupError
from hermes_actors.fallback.spool.disk import SET_ASIDE, SpoolDisk
from hermes_actors.fallback.spool.format import (
    CLAIM_BYTES,
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    NO_CLAIM,
    TABLE_NAME,
    Claim,
    Frame,
    Kind,
    SegmentName,
    UndecodableEntry,
    UnknownVersion,
    decode_claims,
    decode_done,
    decode_entry,
    encode_claim,
    parse_name,
    read_header,
    scan,
)
from hermes_actors.fallback.spool.index import Place

_logger = logging.getLogger(__name__)

_REASONS_SAID_MAX = 5


class FoundEntry(Struct, frozen=True, gc=False):
    """An entry that an earlier process left, without its body."""

    place: Place
    sequence: int
    topic: str
    log_topic: str
    incarnation: int
    spooled_at_ms: int
    key: bytes | None


class SegmentFile(Struct, eq=False):
    """A segment that is there. `listed`: its place in the table, None for an earlier version's.
    `entries` are those that this process has added. What was damaged in a retained one could not
    be set aside, so that it is left for the next start.
    """

    name: SegmentName
    size_bytes: int
    listed: int | None = None
    entries: int = 0
    is_retained: bool = False


class Loaded(Struct):
    """The result of loading: entries in the order in which they came; how many ranges were set
    aside by reason (`corrupt`, or `undecodable`: whole but no entries), and how many were torn.

    `segments` are the files by their numbers, `last` the highest number ever seen, `missing` the
    messages whose loss was accepted.
    """

    entries: list[FoundEntry] = field(default_factory=list)
    segments: dict[int, SegmentFile] = field(default_factory=dict)
    last: int = 0
    set_aside_bytes: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    torn: int = 0
    missing: int = 0


class Losses(Struct):
    """The losses of what must be there: the reasons, in words, and how many messages are missing.

    `claims` are those of the segments that are there, by place, without what is missing, and
    `mended` what is to be written over the table's places.
    """

    reasons: list[str]
    missing: int
    claims: dict[int, Claim]
    mended: dict[int, bytes]

    @property
    def text(self) -> str:
        """The losses in one line, without a way out."""
        # A disk that has lost hundreds of files has them in its folder.
        listed = "; ".join(self.reasons[:_REASONS_SAID_MAX])
        more = len(self.reasons) - _REASONS_SAID_MAX
        if more > 0:
            listed = f"{listed}; {more} more files"
        cost = "no message is missed"
        if self.missing:
            noun = "message is" if self.missing == 1 else "messages are"
            cost = f"{self.missing} acknowledged {noun} missing"
        return f"{listed}; {cost}"


class Segment(Struct):
    """One as it was read: entries that wait, and what of it is to be set aside, and why.

    `starts` are those of all whole entries, `done` the places that marks name.
    """

    size_bytes: int = 0
    is_listed: bool = False
    waiting: list[FoundEntry] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    spoilt: list[tuple[int, int, str]] = field(default_factory=list)
    torn: list[tuple[int, int]] = field(default_factory=list)


def load(disk: SpoolDisk, *, accepts_damage: bool = False) -> Loaded:
    """Read everything; what is damaged is set aside.

    Raises StartupError for what cannot be read, and for a newer version; and DamageFound, with
    nothing changed, when acknowledged messages are missing and that is not accepted.
    """
    try:
        return _load(disk, accepts_damage=accepts_damage)
    except OSError as error:
        raise StartupError(
            f"spool.directory: what an earlier run left cannot be read: {error}; repair the "
            "disk, or move the folder away and start without it"
        ) from error


def _load(disk: SpoolDisk, *, accepts_damage: bool) -> Loaded:
    loaded = Loaded()
    loaded.set_aside_bytes = sum(size for _name, size in disk.names(SET_ASIDE))
    table = read_if_there(disk, TABLE_NAME)
    read = read_segments(disk)
    losses = find_losses(disk, table, read, table)
    if losses.reasons and not accepts_damage:
        raise DamageFound(
            f"spool.directory: the spool is damaged: {losses.text}; restore the "
            "folder from a copy, or start once with --accept-damage to go on without them"
        )
    if losses.reasons:
        _logger.error("spool: accepted as damaged: %s", losses.text)
        _list_anew(read, losses.claims, losses.mended)
    for place, content in losses.mended.items():
        disk.write_at(TABLE_NAME, place * CLAIM_BYTES, content, syncs=True)
    loaded.missing = losses.missing
    places = {claim.name: place for place, claim in losses.claims.items()}
    for name, segment in read.items():
        loaded.segments[name.number] = SegmentFile(name, segment.size_bytes, places.get(name))
        _take_segment(disk, name, segment, loaded)
    there = [parsed[0] for file, _size in disk.names() if (parsed := parse_name(file))]
    for name in there:
        if name not in read:
            # A crash came between the two deletions.
            disk.delete(name.done)
    known = [*there, *(claim.name for claim in decode_claims(table)[0].values())]
    loaded.last = max((name.number for name in known), default=0)
    # Segments that were copied together hold an entry twice until the old one is deleted.
    by_sequence = {each.sequence: each for each in loaded.entries}
    loaded.entries = [by_sequence[sequence] for sequence in sorted(by_sequence)]
    return loaded


def find_losses(
    disk: SpoolDisk, before: bytes, read: dict[SegmentName, Segment], after: bytes
) -> Losses:
    """Compare the segments with the table as it was before and after they were read: a running node
    lists and deletes meanwhile, so only what is in both must be there. Changes nothing. Raises
    OSError.
    """
    claims, unreadable = decode_claims(before)
    still, still_unreadable = decode_claims(after)
    unreadable = [place for place in unreadable if place in still_unreadable]
    losses = Losses([], 0, {}, dict.fromkeys(unreadable, NO_CLAIM))
    if unreadable:
        noun = "place" if len(unreadable) == 1 else "places"
        losses.reasons.append(f"{len(unreadable)} damaged {noun} in {TABLE_NAME}")
    if not after and any(segment.is_listed for segment in read.values()):
        losses.reasons.append(f"{TABLE_NAME} is gone")
    for place, claim in claims.items():
        if place not in still or still[place].name != claim.name:
            continue
        segment = read.get(claim.name)
        known = _done_in(disk, claim.name) if segment is None else segment.starts | segment.done
        missing = claim.entries - sum(at < claim.size_bytes for at in known)
        if missing > 0:
            losses.missing += missing
            losses.reasons.append(_loss(claim, segment, missing))
        if segment is None:
            losses.mended[place] = NO_CLAIM
            continue
        losses.claims[place] = claim
        if missing > 0:
            left = Claim(claim.name, claim.size_bytes, claim.entries - missing)
            losses.claims[place], losses.mended[place] = left, encode_claim(left)
    return losses


def _list_anew(
    read: dict[SegmentName, Segment], claims: dict[int, Claim], mended: dict[int, bytes]
) -> None:
    """List the segments whose places could not be read, as they are now."""
    known = {claim.name for claim in claims.values()}
    for name, segment in read.items():
        if segment.is_listed and name not in known:
            place = next(each for each in range(len(claims) + 1) if each not in claims)
            claims[place] = Claim(name, segment.size_bytes, len(segment.starts))
            mended[place] = encode_claim(claims[place])


def _loss(claim: Claim, segment: Segment | None, missing: int) -> str:
    file = claim.name.entries
    messages = "1 message" if missing == 1 else f"{missing} messages"
    if segment is None:
        return f"{file} is gone, with {messages}"
    if segment.size_bytes < claim.size_bytes:
        cut = f"{segment.size_bytes} bytes of {claim.size_bytes}"
        return f"of {file} only {cut} are there, {messages} less"
    return f"{messages} of {file} damaged"


def aside_name(name: SegmentName, at: int, reason: str) -> str:
    """The file, in the folder `SET_ASIDE`, for what lay at that place of a segment."""
    return f"{reason}-{name.number:010}-{at}.bin"


def keep_aside(disk: SpoolDisk, name: SegmentName, at: int, content: bytes, reason: str) -> int:
    """Set bytes of a segment aside; how many, 0 if that was done at an earlier start.

    Raises OSError.
    """
    file = aside_name(name, at, reason)
    if dict(disk.names(SET_ASIDE)).get(file, -1) >= len(content):
        return 0
    disk.append(f"{SET_ASIDE}/{file}", content, syncs=True)
    return len(content)


def read_segments(disk: SpoolDisk) -> dict[SegmentName, Segment]:
    """Return all segments that are there, in their order. Changes nothing.

    Raises OSError, and StartupError for one of a newer version.
    """
    read: dict[SegmentName, Segment] = {}
    for file, _size in disk.names():
        parsed = parse_name(file)
        if parsed is not None and parsed[1] == "spool":
            # A running node, which others may look at, may delete one meanwhile.
            with suppress(FileNotFoundError):
                read[parsed[0]] = _read_segment(disk, parsed[0])
    return dict(sorted(read.items()))


def _read_segment(disk: SpoolDisk, name: SegmentName) -> Segment:
    data = disk.read(name.entries)
    segment = Segment(len(data))
    try:
        is_listed = read_header(data)
    except UnknownVersion as error:
        raise StartupError(
            f"spool.directory: {name.entries} has {error}; start the newer version until the "
            "spool is empty, or move the file away"
        ) from error
    segment.is_listed = bool(is_listed)
    if is_listed is None and len(data) >= HEADER_BYTES:
        segment.spoilt.append((0, HEADER_BYTES, "corrupt"))
    segment.done = _done_in(disk, name)
    frames, damages = scan(data, name.salt)
    for frame in frames:
        if frame.kind == Kind.ENTRY:
            segment.starts.add(frame.at)
            if frame.at not in segment.done:
                _take(name, frame, segment)
    for damage in damages:
        if damage.is_torn:
            segment.torn.append((damage.at, damage.end))
        else:
            segment.spoilt.append((damage.at, damage.end, "corrupt"))
    return segment


def _take_segment(disk: SpoolDisk, name: SegmentName, segment: Segment, loaded: Loaded) -> None:
    loaded.entries += segment.waiting
    for at, end, reason in segment.spoilt:
        content = disk.read(name.entries, at, end - at)
        _logger.error(
            "spool: %d bytes of %s at %d are %s; set aside", len(content), name.entries, at, reason
        )
        try:
            kept_bytes = keep_aside(disk, name, at, content, reason)
        except OSError as error:
            _logger.error("spool: they could not be set aside yet: %s", error)
            loaded.segments[name.number].is_retained = True
            continue
        loaded.set_aside_bytes += kept_bytes
        loaded.set_aside[reason] += bool(kept_bytes)
    for at, end in segment.torn:
        loaded.torn += 1
        _logger.warning(
            "spool: the last %d bytes of %s were not written whole when the node stopped; they lie "
            "behind all that is known to have been acknowledged",
            end - at,
            name.entries,
        )


def read_if_there(disk: SpoolDisk, file: str) -> bytes:
    """All of a file; nothing when it is not there."""
    try:
        return disk.read(file)
    except FileNotFoundError:
        return b""


def _done_in(disk: SpoolDisk, name: SegmentName) -> set[int]:
    done: set[int] = set()
    for mark in scan(read_if_there(disk, name.done), name.salt)[0]:
        if mark.kind == Kind.DONE:
            done.update(decode_done(mark.payload))
    return done


def _take(name: SegmentName, frame: Frame, segment: Segment) -> None:
    try:
        sequence, entry = decode_entry(frame.payload)
    except UndecodableEntry:
        begin = frame.at + FRAME_OVERHEAD_BYTES
        segment.spoilt.append((begin, begin + len(frame.payload), "undecodable"))
        return
    segment.waiting.append(
        FoundEntry(
            Place(name.number, frame.at, FRAME_OVERHEAD_BYTES + len(frame.payload)),
            sequence,
            entry.topic,
            entry.log_topic,
            entry.incarnation,
            entry.spooled_at_ms,
            entry.message.key,
        )
    )
