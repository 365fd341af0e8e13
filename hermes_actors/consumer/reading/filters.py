"""Looks at each record as soon as it is read, with the subscription's filters of that moment."""

from datetime import UTC, datetime

from hermes_actors.consumer.measures import SubscriptionMeasures
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.reading.screen import Filtered, Screen, let_pass
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.failures import FilterFailed
from hermes_actors.filters.patterns import MATCH_TIME_MAX_S
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message, UndecodableRecord, from_record, is_enveloped
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import Filter

_TOLD_FOR_MS = 3_600_000

_REST_S = 9 * MATCH_TIME_MAX_S
"""After a filter has used up its time: it takes no more than a tenth of the loop's."""


class Screening:
    """What one subscription's filters say of its records; `screen` is for the intake.

    A filter that fails (the message is not JSON, the matcher takes too long) leaves the message
    out, as in Hermes; that is counted, and told by `trouble`.
    """

    def __init__(
        self, live: LiveSubscription, parts: ConsumerParts, measures: SubscriptionMeasures
    ) -> None:
        """Raises FilterInvalid, for a subscription that the factory refuses."""
        self._make_id = parts.ids.message_id
        self._now_ms = parts.clock.now_ms
        self._measures = measures
        self._wanted: list[Filter] = []
        self._failures = 0
        self._failure = ""
        self._failed_at_ms = 0
        self.screen: Screen = let_pass
        self.adopt(live)

    def adopt(self, live: LiveSubscription) -> Screen:
        """The screen for what is read from now on; what has been read before stays judged.

        Raises FilterInvalid.
        """
        if live.subscription.filters != self._wanted:
            filters = Filters(live.subscription.filters)
            self._wanted = live.subscription.filters
            self._failures = 0
            self.screen = self._screen_of(filters) if self._wanted else let_pass
        return self.screen

    @property
    def trouble(self) -> str:
        """For people: that filters could not decide, within the last hour; "" when they could."""
        if not self._failures or self._now_ms() - self._failed_at_ms > _TOLD_FOR_MS:
            return ""
        moment = datetime.fromtimestamp(self._failed_at_ms / 1_000, UTC)
        return (
            f"left out because a filter failed: {self._failures}, the last at "
            f"{moment:%Y-%m-%dT%TZ}: {self._failure}"
        )

    def _screen_of(self, filters: Filters) -> Screen:
        needs_message, rejects = filters.looks_at_headers, filters.rejects
        by_kind = {each.type: Filtered(each.type) for each in self._wanted}

        def screen(record: StoredRecord) -> Message | Filtered | None:
            message = None
            if needs_message or is_enveloped(record):
                try:
                    message = from_record(record, self._make_id)
                except UndecodableRecord:
                    # It becomes a dead letter when it is taken up.
                    return None
                candidate = Candidate(message.body, message.propagated)
            else:
                candidate = Candidate(record.value)
            try:
                kind = rejects(candidate)
            except FilterFailed as error:
                return self._on_failure(error)
            return by_kind[kind] if kind else message

        return screen

    def _on_failure(self, error: FilterFailed) -> Filtered:
        self._measures.filter_errors.value += 1
        self._failures += 1
        self._failure = str(error)
        self._failed_at_ms = self._now_ms()
        return Filtered("failed", _REST_S if error.is_costly else 0.0)
