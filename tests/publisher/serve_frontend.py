"""One frontend over a memory log in a separate process; prints its ports as JSON.

Run as: serve_frontend.py '<FrontendConfig as JSON>' and any of these:
    silent                              both datacentres' logs never answer
    tell                                at the end, print the headers of the records stored in dc1
    spool=FOLDER                        spool there what no log takes
    security='<SecurityConfig as JSON>'
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import Config, FallbackConfig, FrontendConfig, SecurityConfig, SpoolConfig
from hermes_actors.errors import StartupError
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.opening import open_segment_store, open_spool, spool_folder
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import Catalog, LiveTopic
from hermes_actors.model.names import TopicName
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack, ContentType, Owner, PublishingAuth, RetentionTime, Topic
from hermes_actors.publisher.edges.server import FrontendServer
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_actors.runtime.signals import stop_on_signal
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.schema.source import CatalogSchemas
from hermes_actors.schema.topics import TopicValidations
from hermes_actors.security.opening import open_authenticator
from hermes_actors.telemetry.metrics import Metrics

TOPICS = {
    "shop.orders": (Ack.LEADER, ContentType.JSON),
    "shop.audit": (Ack.ALL, ContentType.JSON),
    "shop.clicks": (Ack.LEADER, ContentType.AVRO),
    "shop.guarded": (Ack.LEADER, ContentType.JSON),
    "shop.distant": (Ack.LEADER, ContentType.JSON),
}
PUBLISHERS = ["shop-app", "shop-cert"]


def live_topic(name: str, ack: Ack, content_type: ContentType) -> LiveTopic:
    topic = Topic(
        name=name,
        description="",
        owner=Owner("Plaintext", "team"),
        content_type=content_type,
        retention_time=RetentionTime(1),
        ack=ack,
        max_message_size=2_048,
        fallback_to_remote_datacenter_enabled=name == "shop.distant",
        auth=PublishingAuth(
            publishers=PUBLISHERS,
            enabled=name == "shop.guarded",
            unauthenticated_access_enabled=name != "shop.guarded",
        ),
    )
    return LiveTopic(TopicName.parse(name), topic, 1, 1, name)


def headers_of(record: StoredRecord) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers}


async def serve(
    config: FrontendConfig,
    is_silent: bool,
    security: SecurityConfig,
    tells: bool,
    spool: str,
) -> None:
    clock = SystemClock()
    whole = Config(frontend=config, spool=SpoolConfig(enabled=bool(spool), directory=spool or "-"))
    authenticator = await open_authenticator(security, clock, IdSource(), InlinePool())
    log, remote = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    metrics = Metrics("hermes_frontend")
    live = {name: live_topic(name, *kind) for name, kind in TOPICS.items()}
    metadata: Any = SimpleNamespace(
        is_own=True,
        catalog=SimpleNamespace(topics=live),
        has_ended=lambda _topic, _incarnation: False,
    )
    async with (
        open_supervisor(system_rng()) as supervisor,
        open_spool(
            lambda: open_segment_store(spool_folder(whole), whole.spool.disk_bytes_max),
            whole,
            metadata,
            log,
            lambda: [remote],
            control=supervisor,
            metrics=metrics,
            clock=clock,
            rng=system_rng(),
        ) as kept,
        trio.open_nursery() as nursery,
    ):
        frontend = Frontend(
            config,
            log,
            supervisor,
            metrics,
            clock,
            IdSource(),
            authenticator=authenticator,
            spool=kept,
            schema_of=TopicValidations(CatalogSchemas(Catalog()), InlinePool()).of,
            fallback=Fallback(
                FallbackConfig(), log, {"dc2": remote}, nursery, clock, system_rng(), metrics
            ),
        )
        authenticator.start(supervisor)
        for name, each in live.items():
            for one in (log, remote):
                await one.topics.create(name, TopicSettings(partitions=4))
            frontend.routes.set(each, nursery)
        log.faults.silent = remote.faults.silent = is_silent
        stored: list[dict[str, str]] = []
        if tells:
            log.on_append.append(lambda _topic, record: stored.append(headers_of(record)))
        nursery.start_soon(frontend.deadlines.run)
        server = FrontendServer(frontend)
        await guest.call(server.start)
        frontend.drain.open()
        ended = trio.Event()
        await nursery.start(stop_on_signal, ended.set)
        sys.stdout.write(json.dumps([server.port, server.tls_port]) + "\n")
        sys.stdout.flush()
        await ended.wait()
        await frontend.drain.run()
        await guest.call(server.stop)
        if tells:
            sys.stdout.write(json.dumps(stored))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    try:
        given = [
            each.removeprefix("security=") for each in sys.argv if each.startswith("security=")
        ]
        guest.run(
            serve,
            msgspec.json.decode(sys.argv[1], type=FrontendConfig),
            "silent" in sys.argv,
            msgspec.json.decode(given[0] if given else "{}", type=SecurityConfig),
            "tell" in sys.argv,
            "".join(each[len("spool=") :] for each in sys.argv if each.startswith("spool=")),
        )
    except* StartupError as group:
        sys.stdout.write(f"error: {group.exceptions[0]}\n")
        sys.exit(1)
