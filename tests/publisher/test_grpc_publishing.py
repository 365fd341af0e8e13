"""Publishing by gRPC has the outcomes of HTTP."""

import asyncio  # noqa: TID251 -- gRPC lives on the host loop

import grpc
import pytest
import trio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.config import (
    PropagationConfig,
    PublishingAuthenticationConfig,
    ThroughputConfig,
)
from hermes_actors.errors import ErrorCode
from hermes_actors.model.topic import Durability, PublishingAuth
from hermes_actors.publisher.edges.grpc import publishing
from hermes_actors.publisher.edges.grpc.codes import CODES, code_of
from hermes_actors.runtime import guest
from hermes_actors.security.authenticator import Authenticator
from tests.publisher.grpc_scene import TOPIC, frame, message, opened, run
from tests.publisher.test_auth import ByName

pytestmark = pytest.mark.guest


async def over_http(world, one, topic=TOPIC):
    """What `Scene.outcome` says of the same message over HTTP."""
    headers = dict(one.attributes)
    if one.ordering_key:
        headers["partition-key"] = one.ordering_key.encode()
    answer = await world.client.post(f"/topics/{topic}", content=one.data, headers=headers)
    said = answer.json() if answer.content else {"code": "", "message": ""}
    status = answer.status_code
    return code_of(status).value[0], status, said["code"], said["message"]


KEYS = st.sampled_from(["", "k", "ä", "x" * 3_000])
ATTRIBUTES = st.sampled_from(
    [
        {},
        {"x-app": "a"},
        {f"x-{number}": "y" for number in range(30)},
        {"ce-id": "1", "ce-source": "/a", "ce-type": "b", "ce-specversion": "1.0"},
        {"ce-id": "1", "ce-specversion": "1.0"},
        {"idempotency-key": "x" * 300},
        {"hermes-replay-id": "1"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    ]
)
BODIES = st.sampled_from([b"{}", b"", b"\xff", b"x" * 1_024, b"x" * 1_025, b"x" * 2_100])
MESSAGES = st.builds(
    lambda data, key, attributes: message(data, key, **attributes), BODIES, KEYS, ATTRIBUTES
)
TOPICS = st.sampled_from([TOPIC, TOPIC, TOPIC, "no.such", "shop.guarded", ""])


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8
)
@given(published=st.lists(st.tuples(TOPICS, MESSAGES), min_size=1, max_size=12))
def test_the_same_message_has_the_same_outcome_as_over_http(open_world, published):
    async def main():
        # The two servers name different limits for a whole request head, so none here is near them.
        async with opened(
            open_world,
            body_bytes_max=2_000,
            headers_max=25,
            propagation=PropagationConfig(enabled=True),
        ) as scene:
            guarded = PublishingAuth(enabled=True, publishers=["app"])
            await scene.world.add_topic("shop.guarded", auth=guarded)
            for topic, one in published:
                if not topic:
                    continue
                found = await scene.outcome(one, topic)
                wanted = await over_http(scene.world, one, topic)
                assert found[:3] == wanted[:3], (topic, one)
                (outcomes,) = (await scene.stream(frame(one, topic=topic))).values()
                assert outcomes[0].http_status == wanted[1]
                if found[1] == 201:
                    first, second, third = scene.world.stored[-3:]
                    assert first.value == second.value == third.value
                    assert first.key == second.key == third.key

    run(main)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8
)
@given(messages=st.lists(MESSAGES, min_size=2, max_size=9))
def test_a_message_among_many_has_the_outcome_that_it_has_alone(open_world, messages):
    async def main():
        async with opened(
            open_world,
            body_bytes_max=2_000,
            header_bytes_max=2_000,
            topic={"partitions": 3},
            headers_max=25,
        ) as scene:
            (together,) = (await scene.stream(frame(*messages))).values()
            stored = {(each.key, each.value) for each in scene.world.stored}
            scene.world.stored.clear()
            alone = [await scene.outcome(each) for each in messages]
            assert [(each.http_status, each.error_code) for each in together] == [
                (status, code) for _, status, code, _ in alone
            ]
            assert stored == {(each.key, each.value) for each in scene.world.stored}
            of_key = [each.value for each in scene.world.stored if each.key == b"k"]
            wanted = [
                each.data
                for each, (code, *_) in zip(messages, alone, strict=True)
                if each.ordering_key == "k" and not code
            ]
            assert of_key == wanted

    run(main)


def test_a_call_fails_if_no_message_is_accepted_and_its_metadata_has_the_details(open_world):
    limited = ThroughputConfig(type="fixed", fixed_max_bytes_per_s=1)

    async def main():
        async with opened(open_world, throughput=limited) as scene:
            large = message(b"x" * 1_025)
            both = await scene.publish(message(b"{}"), large)
            assert [each.http_status for each in both] == [201, 400]
            assert [each.code for each in both] == [0, 3]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scene.publish(large, large)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "at most 1024" in refused.value.details()
            await scene.outcome(message(b"x" * 1_000))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scene.publish(message(b"x" * 1_000))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            more = dict(refused.value.trailing_metadata())
            assert more["hermes-http-status"] == "429"
            assert more["hermes-error-code"] == "THROUGHPUT_QUOTA_VIOLATION"
            assert int(more["retry-after"]) > 0

    run(main)


def test_an_idempotency_key_of_a_message_counts_alone_and_among_others(open_world):
    async def main():
        async with opened(open_world) as scene:
            keyed = message(b"{}", idempotency_key="order-1")
            await scene.publish(keyed)
            (again, plain) = await scene.publish(keyed, message(b"[]"))
            assert (again.http_status, again.headers["idempotency-replayed"]) == (201, "true")
            assert plain.http_status == 201
            assert len(scene.world.stored) == 2
            code, status, *_ = await scene.outcome(message(b"1", idempotency_key="order-1"))
            assert (code, status) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], 422)
            # A key for all messages of a call would be the same for each.
            await scene.publish(message(b"2"), metadata=(("idempotency-key", "order-1"),))

    run(main)


def test_metadata_travels_to_subscribers_but_that_of_grpc_itself(open_world):
    async def main():
        async with opened(open_world, propagation=PropagationConfig(enabled=True)) as scene:
            await scene.publish(message(), metadata=(("team", "red"), ("shop", "x")))
            names = {name for name, _ in scene.world.stored[-1].headers}
            assert {"h-team", "h-shop"} <= names
            assert names.isdisjoint({"h-te", "h-content-type"})

    run(main)


def test_a_client_waits_no_longer_than_its_deadline(open_world):
    async def main():
        async with opened(open_world) as scene:
            scene.world.log.faults.silent = True
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await scene.publish(message(), within_s=0.05)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            scene.world.log.faults.silent = False

    run(main)


def test_too_many_waiting_messages_are_unavailable_as_over_http(open_world):
    async def main():
        async with opened(
            open_world,
            waiting_per_topic_max=3,
            batch_records_max=1,
            max_publish_request_duration_ms=60_000,
            idle_timeout_ms=60_000,
        ) as scene:
            scene.world.log.faults.silent = True
            admitted = []
            # One is in flight, the next one is its batch, three are in the mailbox.
            while sum(not each.is_done for each in admitted) < 5:
                admitted.append(scene.world.admit())
                await trio.sleep(0.001)
            expected = await over_http(scene.world, message())
            assert expected[:2] == (14, 503)
            assert "too many messages wait to be stored; try again" in expected[3]
            assert await scene.outcome(message()) == expected
            found = await scene.stream(*(frame(message(), sequence=n) for n in range(9)))
            assert len(found) == 9
            for (each,) in found.values():
                shown = each.code, each.http_status, each.error_code, each.error_message
                assert shown == expected
            scene.world.log.faults.silent = False

    run(main)


def test_publishers_are_identified_by_metadata_and_again_after_a_while(open_world, monkeypatch):
    guarded = {"auth": PublishingAuth(enabled=True, publishers=["shop"])}
    by_name = ByName()
    security = {"authenticator": Authenticator([by_name])}
    config = PublishingAuthenticationConfig(enabled=True)
    shop = (("authorization", "Name shop"),)

    async def main():
        async with opened(
            open_world, topic=guarded, parts=security, authentication=config
        ) as scene:
            assert (await scene.outcome(message(), metadata=shop))[0] == 0
            for credentials, code, status in (
                ("Name other", 7, 403),
                ("Name bad", 16, 401),
                ("Name away", 14, 503),
                ("", 16, 401),
            ):
                metadata = (("authorization", credentials),) if credentials else ()
                found = await scene.outcome(message(), metadata=metadata)
                assert found[:2] == (code, status)
                (outcomes,) = (await scene.stream(frame(message()), metadata=metadata)).values()
                assert (outcomes[0].code, outcomes[0].http_status) == (code, status)
            twice = await scene.outcome(message(), metadata=shop + shop)
            assert twice[:2] == (3, 400)
            asked = by_name.asked
            await scene.stream(*[frame(message())] * 5, metadata=shop)
            assert by_name.asked == asked + 1

            monkeypatch.setattr("hermes_actors.publisher.edges.grpc.frames._AGAIN_S", 0.0)
            by_name.expires_after = by_name.asked + 2
            frames = [frame(message(), sequence=each) for each in range(5)]
            found = await scene.stream(*frames, metadata=shop)
            assert [found[each][0].http_status for each in range(5)] == [201, 201, 401, 401, 401]

    run(main)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_not_read_on_and_gets_all_when_it_does(open_world):
    async def main():
        async with opened(open_world) as scene:
            many = [message(b"x" * 1_000)] * 100
            # Their answers fit into what gRPC reads for the client.
            unread_frames = 30
            sent, count = 0, 150

            async def client():
                nonlocal sent
                call = scene.stub.PublishStream()
                blocked = asyncio.create_task(write(call))
                # Until nothing moves any more.
                before = -1
                while before < sent:
                    before = sent
                    await asyncio.sleep(0.1)
                stored = len(scene.world.stored)
                assert sent < count
                found = {}
                async for answer in call:
                    found |= {each.sequence: len(each.outcomes) for each in answer.frames}
                await blocked
                return stored, found

            async def write(call):
                nonlocal sent
                for sequence in range(count):
                    await call.write(frame(*many, sequence=sequence))
                    sent += 1
                await call.done_writing()

            stored, found = await guest.call(client)
            read_max = publishing.STREAM_BYTES_MAX // 100_000 + unread_frames
            assert stored <= 100 * read_max
            assert found == dict.fromkeys(range(count), 100)

    run(main)


@pytest.mark.slow
def test_a_stopping_node_answers_what_it_has_read_and_ends_streams(open_world):
    async def main():
        async with opened(open_world) as scene:
            frontend, found = scene.world.frontend, []

            async def client():
                call = scene.stub.PublishStream()
                await call.write(frame(message(), sequence=1))
                found.append((await call.read()).frames[0].sequence)
                frontend_log.silent = True
                await call.write(frame(message(), sequence=2))
                found.append((await call.read()).frames[0].sequence)
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await call.read()
                return ended.value.code(), ended.value.details()

            async def stop():
                while frontend.drain.in_flight == 0:  # noqa: ASYNC110 -- tells no event
                    await trio.sleep(0.01)
                health = health_pb2_grpc.HealthStub(scene.channel)

                async def check():
                    request = health_pb2.HealthCheckRequest(service="hermes.v1.PublisherService")
                    return (await health.Check(request)).status

                assert await guest.call(check) == health_pb2.HealthCheckResponse.SERVING
                async with trio.open_nursery() as draining:
                    draining.start_soon(frontend.drain.run)
                    await trio.sleep(0.05)
                    frontend_log.silent = False
                await trio.sleep(0.6)
                assert await guest.call(check) == health_pb2.HealthCheckResponse.NOT_SERVING
                assert (await scene.outcome(message()))[:2] == (14, 503)

            frontend_log = scene.world.log.faults
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                code, text = await guest.call(client)
            assert found == [1, 2]
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "send the frames without outcomes again" in text

    run(main)


def test_each_status_of_an_error_has_its_row_in_the_table():
    assert {code.status for code in ErrorCode} - {406} <= set(CODES)
    assert code_of(418) is CODES[400]
    assert code_of(507) is CODES[500]


def test_outcomes_of_a_topic_in_memory_say_so(open_world):
    async def main():
        async with opened(open_world) as scene:
            route = scene.world.frontend.routes.by_name[TOPIC]
            route.topic = replace(route.topic, durability=Durability.PERFORMANCE)
            found = await scene.stream(frame(message(), sequence=1), frame(*[message()] * 2))
            outcomes = [outcome for each in found.values() for outcome in each]
            assert [each.headers for each in outcomes] == [{"hermes-durability": "memory"}] * 3

    run(main)
