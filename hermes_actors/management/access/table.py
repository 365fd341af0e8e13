"""The table of access: who may call which route, and which routes change nothing.

The gate enforces it, the OpenAPI document and docs/management.md show it, and a route without a row
fails at the start. Owners are checked where the object is known, and so are rules for single fields
(rules.py, groups.py): the table only says that the caller needs an account for them.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import product
from typing import NamedTuple


class Access(StrEnum):
    """Who may call a route. Administrators may call all of them, read-only accounts those that
    change nothing.
    """

    OPEN = "open"
    """Everybody, always."""
    ANYONE = "anyone"
    """Everybody; with `management.authentication.reads` = "authenticated", every account."""
    ACCOUNT = "account"
    """Every account. The answer, or what may be set, can depend on the caller's rights."""
    OWNER = "owner"
    """The owners of the topic, subscription or group."""
    ADMIN = "admin"
    """Administrators."""


class Rule(NamedTuple):
    """Who may call a route, and whether it changes something."""

    access: Access
    changes: bool

    @property
    def is_pulling(self) -> bool:
        """True for a client of a pull subscription: it changes no metadata, so it may go on in
        read-only mode.
        """
        return self is _PULLING


_PULLING = Rule(Access.OWNER, changes=True)

# `…` stands for a subscription's path, `^` for /schema-registry. A `form` is read by GET
# and changes something by POST. A backup has the rule of changes, because read-only accounts do not
# need secrets.
_TABLE = """
open    reads   GET      /livez /readyz /startupz /status/health /status/prometheus
open    reads   GET      /openapi.json /docs
open    reads   GET      /roles /roles/topics/{topic} /roles…

anyone  reads   GET      /groups /groups/{group}
account changes POST     /groups
owner   changes PUT      /groups/{group}
account changes DELETE   /groups/{group}

anyone  reads   GET      /topics /topics/{topic} /topics/owner/{source}/{owner}
anyone  reads   GET      /topics/{topic}/clients /topics/{topic}/offline-clients-source
anyone  reads   GET      /topics/{topic}/metrics
account changes POST     /topics
owner   changes PUT,DELETE /topics/{topic}
owner   reads   GET      /topics/{topic}/messages
owner   reads   GET      /topics/{topic}/preview /topics/{topic}/preview/{index}
owner   reads   GET  /topics/{topic}/preview/cluster/{cluster}/partition/{partition}/offset/{offset}
anyone  reads   GET      /topics/{topic}/schema /topics/{topic}/schema/versions/{version}
anyone  reads   GET      /topics/{topic}/schema/ids/{schema_id}
owner   changes POST,DELETE /topics/{topic}/schema

anyone  reads   GET      /topics/{topic}/subscriptions /subscriptions/owner/{source}/{owner}
anyone  reads   GET      … …/state
anyone  reads   GET      …/metrics …/metrics/persistent …/health …/why …/lag …/consumer-groups
account changes POST     /topics/{topic}/subscriptions
owner   changes PUT      … …/state …/retransmission
owner   changes DELETE   …
owner   changes POST     …/signing/rotate …/signing/retire …/test
owner   takes   POST     …/pull …/ack …/nack …/extend
admin   changes POST     …/moveOffsetsToTheEnd
owner   reads   GET      …/undelivered …/undelivered/last
owner   reads   GET      …/dead-letters …/dead-letters/{letter} …/dead-letters/redrive
owner   changes POST     …/dead-letters/expire …/dead-letters/redrive
owner   changes DELETE   …/dead-letters/redrive
account reads   GET      /dead-letters /tracking/{message_id} …/events/{message_id}/trace

anyone  reads   POST,PUT /query/groups /query/topics /query/topics/metrics
anyone  reads   POST,PUT /query/subscriptions /query/subscriptions/metrics
anyone  reads   POST     /topics/query /topics/{topic}/subscriptions/query
anyone  reads   GET      /search/query
anyone  reads   POST     /graphql
account reads   POST     /filters/{topic}

anyone  reads   GET      /oauth/providers /oauth/providers/{provider}
admin   changes POST     /oauth/providers
admin   changes PUT,DELETE /oauth/providers/{provider}
anyone  reads   GET      /owners/sources /owners/sources/{source} /owners/sources/{source}/{owner}

account changes POST     /apply
admin   changes GET      /metadata/backup
admin   changes POST     /metadata/restore
anyone  reads   GET      /workload-constraints /balancer /balancer/plan /balancer/explain
admin   changes PUT      /workload-constraints/topic /workload-constraints/subscription
admin   changes DELETE   /workload-constraints/topic/{topic}
admin   changes DELETE   /workload-constraints/subscription/{topic}/{name}
admin   changes PUT,DELETE /balancer/drains/{dc}/{node}
admin   reads   GET      /readiness/datacenters
admin   changes POST     /readiness/datacenters/{dc}
anyone  reads   GET      /mode
admin   changes POST     /mode
account reads   GET      /audit /events
anyone  reads   GET      /stats /unhealthy /status/nodes /status/subscriptions /status/topics

anyone  reads   GET      ^ ^/{rest} ^/subjects ^/subjects/{subject}/versions
anyone  reads   GET      ^/subjects/{subject}/versions/{version}
anyone  reads   GET      ^/subjects/{subject}/versions/{version}/schema
anyone  reads   GET      ^/schemas/types ^/schemas/ids/{schema_id} ^/schemas/ids/{schema_id}/schema
anyone  reads   GET      ^/schemas/ids/{schema_id}/versions ^/schemas/ids/{schema_id}/subjects
anyone  reads   GET      ^/mode ^/mode/{subject} ^/config ^/config/{subject}
account reads   POST     ^/subjects/{subject} ^/compatibility/subjects/{subject}/versions
account reads   POST     ^/compatibility/subjects/{subject}/versions/{version}
owner   changes POST     ^/subjects/{subject}/versions
owner   changes DELETE   ^/subjects/{subject} ^/subjects/{subject}/versions/{version}
admin   changes PUT      ^/config
owner   changes PUT,DELETE ^/config/{subject}
anyone  reads   POST,PUT,DELETE ^ ^/{rest}

admin   reads   GET      /consistency/groups /consistency/inconsistencies/groups
admin   reads   GET      /consistency/inconsistencies/topics /inactive-topics
admin   changes DELETE   /consistency/inconsistencies/topics
admin   changes POST     /consistency/sync/groups/{group} /consistency/sync/topics/{topic}
admin   changes POST     /consistency/sync…
anyone  reads   GET      /offline-retransmission/tasks /offline-retransmission/topics/{topic}/tasks
owner   changes POST     /offline-retransmission/tasks
account changes DELETE   /offline-retransmission/tasks/{task}
open    reads   GET      /console
anyone  reads   GET      /dashboards/topics/{topic} /dashboards… /monitoring/consumer-groups
anyone  reads   GET      /tracking-urls/topics/{topic} /tracking-urls…

open    reads   GET      /console/static/{name}
open    form    GET,POST /console/sign-in
open    changes POST     /console/sign-out
anyone  reads   GET      /console/overview /console/overview/live /console/search
anyone  reads   GET      /console/topics /console/subscriptions /console/groups
account reads   GET      /console/audit /console/trace /console/topics/{topic}/audit
account form    GET,POST /console/groups/new /console/apply
account form    GET,POST /console/topics/new /console/topics/{topic}/subscriptions/new
owner   form    GET,POST /console/topics/{topic}/edit
owner   form    GET,POST /console/topics/{topic}/publish /console/topics/{topic}/remove
anyone  reads   GET      /console/topics/{topic} /console/topics/{topic}/live
anyone  reads   GET      /console/topics/{topic}/export /console/topics/{topic}/schema
owner   changes POST     /console/topics/{topic}/schema
owner   reads   GET      /console/topics/{topic}/messages /console/topics/{topic}/messages/live
anyone  reads   GET      /console… /console…/live
owner   form    GET,POST /console…/edit /console…/suspend /console…/activate /console…/remove
owner   form    GET,POST /console…/rotate /console…/retire /console…/test /console…/retransmit
owner   reads   GET      /console…/dead-letters /console…/dead-letters/live
owner   reads   GET      /console…/dead-letters/{letter}
owner   form    GET,POST /console…/dead-letters/redrive /console…/dead-letters/expire
owner   changes POST     /console…/dead-letters/cancel
anyone  reads   GET      /console/balancer /console/balancer/live /console/balancer/plan
admin   form    GET,POST /console/balancer/drain/{dc}/{node} /console/balancer/readiness/{dc}
admin   changes POST     /console/balancer/undrain/{dc}/{node}
"""


def _rows() -> Iterator[tuple[tuple[str, str], Rule]]:
    for row in filter(None, _TABLE.splitlines()):
        access, effect, verbs, *paths = row.split()
        for path, verb in product(paths, verbs.split(",")):
            changes = effect == "changes" or (effect == "form" and verb == "POST")
            rule = _PULLING if effect == "takes" else Rule(Access(access), changes)
            full = path.replace("…", "/topics/{topic}/subscriptions/{name}")
            yield (verb, full.replace("^", "/schema-registry")), rule


RULES: Mapping[tuple[str, str], Rule] = dict(_rows())
"""The table: the rule of each verb and path."""


def rule_of(verb: str, path: str) -> Rule:
    """The rule of a route. Its path may have the types of parameters.

    Raises LookupError if the route is not in the table.
    """
    rule = RULES.get((verb, re.sub(r":\w+}", "}", path)))
    if rule is None:
        raise LookupError(f"Add a row for {verb} {path} to {__name__}: who may call it?")
    return rule
