"""`hermes subscription create|show|update|delete`."""

from typing import Annotated, Any

import msgspec
import typer

from hermes_actors.cli.administration import resource
from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.administration.topics import OWNER_DEFAULT
from hermes_actors.cli.command_line import bodies
from hermes_actors.cli.command_line.failures import UsageWrong, warn
from hermes_actors.cli.command_line.options import FromFileOption, PatchArgument, YesOption
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import show_object
from hermes_actors.cli.subscriptions import (
    activation,
    deliveries,
    faring,
    signing,
    trying,
)
from hermes_actors.cli.subscriptions.filter_options import FilterOption, filters_of
from hermes_actors.model.redaction import MASK
from hermes_actors.model.signing_secrets import new_hmac_secret
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    SerialPolicy,
    Subscription,
    Tombstones,
    TrackingMode,
)
from hermes_actors.model.topic import ContentType
from hermes_actors.runtime.clock import IdSource

app = command_group("Subscriptions: who gets a topic's messages, by push or pull.")


@management_command(
    app,
    "hermes subscription create shop.orders a --endpoint http://127.0.0.1:9000/",
    "hermes subscription create shop.orders b --endpoint http://... --rate 50",
    "hermes subscription create shop.orders c --endpoint http://... "
    "--filter 'jsonpath:$.country=PL|DE' --filter header:Channel=web",
    "hermes subscription create shop.orders d --delivery-type PULL",
    "hermes subscription create shop.orders --from-file subscription.json",
)
def create(
    topic: TopicArgument,
    subscription: Annotated[
        str | None,
        typer.Argument(metavar="SUBSCRIPTION", help="May be in the file of --from-file."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Address to push messages to.")
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Messages per second in each DC.",
            show_default="400, BATCH: no limit",
        ),
    ] = None,
    ttl_s: Annotated[
        int | None,
        typer.Option(
            "--ttl-s", min=0, help="Retry no longer than this.", show_default="3600, BATCH: 60"
        ),
    ] = None,
    backoff_ms: Annotated[
        int | None,
        typer.Option(
            "--backoff-ms", min=0, help="Wait before a retry.", show_default="100, BATCH: 500"
        ),
    ] = None,
    request_timeout_ms: Annotated[
        int | None, typer.Option("--request-timeout-ms", min=1, show_default="1000, BATCH: 30000")
    ] = None,
    retry_client_errors: Annotated[
        bool, typer.Option("--retry-client-errors", help="Retry 4xx answers too.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Keep the order per Partition-Key; SERIAL only.")
    ] = False,
    attempts_max: Annotated[
        int | None,
        typer.Option("--attempts-max", min=1, metavar="N", help="Give up after N attempts."),
    ] = None,
    retry_on: Annotated[
        list[int] | None,
        typer.Option(metavar="STATUS", help="Retry after this answer; repeatable."),
    ] = None,
    discard_on: Annotated[
        list[int] | None,
        typer.Option(metavar="STATUS", help="Give up after this answer; repeatable."),
    ] = None,
    filters: FilterOption = None,
    content_type: Annotated[
        ContentType | None,
        typer.Option(help="Format for AVRO topics; other topics send JSON.", show_default="JSON"),
    ] = None,
    delivery_type: Annotated[
        DeliveryType | None,
        typer.Option(
            help="Push one by one, push batches, or let clients pull.", show_default="SERIAL"
        ),
    ] = None,
    tracking_mode: Annotated[
        TrackingMode | None,
        typer.Option(help="Which deliveries `hermes trace` shows.", show_default="trackingOff"),
    ] = None,
    tombstones: Annotated[
        Tombstones | None,
        typer.Option(help="What to do with Kafka records without a value.", show_default="deliver"),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="SOURCE:ID", show_default=OWNER_DEFAULT)
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    from_file: FromFileOption = None,
) -> None:
    """Create a subscription. It gets messages published from now on. Options override the file
    given with --from-file.
    """
    file = bodies.from_file(from_file)
    is_batch = (delivery_type or file.get("deliveryType")) == DeliveryType.BATCH
    if ordered and is_batch:
        raise UsageWrong("--ordered is for SERIAL subscriptions; a batch keeps the log's order")
    policy = {
        "messageRate" if is_batch else "rate": rate,
        "messageTtl": ttl_s,
        "messageBackoff": backoff_ms,
        "requestTimeout": request_timeout_ms,
        "retryClientErrors": retry_client_errors or None,
        "ordered": ordered or None,
        "attemptsMax": attempts_max,
        "retryOn": retry_on or None,
        "discardOn": discard_on or None,
    }
    given: dict[str, Any] = {
        "topicName": topic,
        "name": subscription,
        "endpoint": endpoint,
        "description": description,
        "owner": None if owner is None else bodies.owner(owner),
        "contentType": content_type,
        "deliveryType": delivery_type,
        "trackingMode": tracking_mode,
        "tombstones": tombstones,
        "filters": filters_of(filters) or None,
        "subscriptionPolicy": {key: value for key, value in policy.items() if value is not None},
    }
    body = subscription_body(file, given)
    name = str(body["name"])
    secret = _sign_anew(body)
    answer = management().post(subscription_path(topic), body)
    if secret:
        # First, because the secret cannot be shown again.
        warn(
            "the signing secrets in the file are masked, so the subscription signs with a new "
            f"one; give it to the subscriber: {secret}"
        )
    line = f"created subscription {name} of {topic}"
    known = known_fields(body)
    resource.show_updated(subscription_path(topic, name), answer, line, body, known)


def _sign_anew(body: dict[str, Any]) -> str:
    """Replace masked secrets in a body that `show` has printed with a new secret, and return it.
    Empty string if none is masked.
    """
    signing = body.get("signing")
    secrets = signing.get("secrets") if isinstance(signing, dict) else None
    if not isinstance(secrets, list) or MASK not in secrets:
        return ""
    secret = new_hmac_secret(IdSource())
    body["signing"] = {"secrets": [secret, *(each for each in secrets if each != MASK)]}
    return secret


def known_fields(body: dict[str, Any]) -> frozenset[str]:
    """Return the dotted names of all fields of a subscription.

    They are needed because a server shows fields that Hermes does not have only if they differ from
    their defaults.
    """
    policy = BatchPolicy if body.get("deliveryType") == DeliveryType.BATCH else SerialPolicy
    return frozenset(each.encode_name for each in msgspec.structs.fields(Subscription)) | frozenset(
        f"subscriptionPolicy.{each.encode_name}" for each in msgspec.structs.fields(policy)
    )


def subscription_body(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a subscription as JSON: the options override the file, which overrides defaults."""
    defaults = {"description": "", "owner": bodies.owner(OWNER_DEFAULT)}
    set_now = {key: value for key, value in given.items() if value is not None}
    body = bodies.merged(defaults | file, set_now)
    # The state is kept: a copy of a suspended subscription must not start to deliver.
    for servers_own in ("createdAt", "modifiedAt"):
        body.pop(servers_own, None)
    if not body.get("subscriptionPolicy"):
        body.pop("subscriptionPolicy", None)
    if not body.get("name"):
        raise UsageWrong('a subscription needs a name: give SUBSCRIPTION, or "name" in the file')
    is_pulled = body.get("deliveryType") == DeliveryType.PULL
    if not is_pulled and not body.get("endpoint"):
        raise UsageWrong(
            "a subscription needs an endpoint: give --endpoint http://host:port/path "
            "('hermes sink' runs a test endpoint), or --delivery-type PULL"
        )
    return body


@management_command(app, "hermes subscription show shop.orders billing")
def show(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Show a subscription; its secrets are masked."""
    show_object(management().get(subscription_path(topic, subscription)))


@management_command(
    app,
    "hermes subscription update shop.orders billing subscriptionPolicy.rate=50",
    "hermes subscription update shop.orders billing endpoint=http://...",
)
def update(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    pairs: PatchArgument = None,
    from_file: FromFileOption = None,
) -> None:
    """Update some fields of a subscription; the others stay. Pairs override the file."""
    path, body = subscription_path(topic, subscription), bodies.changes(pairs, from_file)
    line = f"updated subscription {subscription} of {topic}"
    resource.show_updated(path, management().put(path, body), line, body, known_fields(body))


@management_command(app, "hermes subscription delete shop.orders billing --yes")
def delete(
    topic: TopicArgument, subscription: SubscriptionArgument, yes: YesOption = False
) -> None:
    """Delete a subscription and its position in the topic."""
    what = f"subscription {subscription} of {topic}"
    resource.delete(subscription_path(topic, subscription), subscription, what, yes)


for part in (faring, activation, deliveries, signing, trying):
    app.add_typer(part.app)
