"""A frontend that ends says so first, then refuses, and answers all that is under way."""

import trio

from hermes_actors.status.dependencies import Dependency


async def test_a_frontend_that_keeps_what_its_log_does_not_take_is_ready(
    open_world, autojump_clock
):
    goes_on = [True]
    parts = {"dependencies": lambda: [Dependency("log", "it is away", is_needed=not goes_on[0])]}
    async with open_world(parts=parts) as world:
        ready = await world.client.get("/status/ready")
        assert (ready.status_code, ready.text) == (200, "READY")
        details = (await world.client.get("/status/details")).json()
        assert details == {
            "phase": "SERVING",
            "isReady": True,
            "reason": "",
            "notices": ["log: it is away"],
            "dependencies": [
                {"name": "log", "isWorking": False, "isNeeded": False, "reason": "it is away"},
                {"name": "process", "isWorking": True, "isNeeded": True, "reason": ""},
            ],
            "dc": "dc1",
            "node": "",
        }
        goes_on[0] = False
        ready = await world.client.get("/status/ready")
        assert (ready.status_code, ready.text) == (503, "NOT_READY")


async def test_health_is_503_at_once_while_publishing_goes_on(open_world, autojump_clock) -> None:
    async with open_world(graceful_shutdown_initial_wait_ms=10_000) as world:
        await world.add_topic("shop.orders")
        world.nursery.start_soon(world.frontend.drain.run)
        await trio.sleep(0.001)
        for path in ("/", "/status/ping", "/status/health"):
            page = await world.client.get(path)
            assert (page.status_code, page.text) == (503, "SHUTDOWN")
        ready = await world.client.get("/status/ready")
        assert (ready.status_code, ready.text) == (503, "NOT_READY")
        ready = await world.client.get("/readyz")
        assert (ready.status_code, ready.text.splitlines()[0]) == (
            503,
            "[-]process: it is shutting down",
        )
        # It is no reason to end it before its time.
        for path in ("/livez", "/startupz"):
            assert (await world.client.get(path)).status_code == 200
        assert (await world.publish()).status_code == 201
        await trio.sleep(10)
        answer = await world.publish()
        assert (answer.status_code, answer.content) == (503, b"")
        assert "hermes-message-id" not in answer.headers
        # Else the publisher's next request meets the listener's end, and gets no answer.
        assert answer.headers["connection"] == "close"


async def test_answers_of_a_frontend_that_leaves_close_their_connections(
    open_world, autojump_clock
) -> None:
    async with open_world(
        graceful_shutdown_initial_wait_ms=10_000, keep_alive_header=True, body_bytes_max=100
    ) as world:
        await world.add_topic("shop.orders")

        async def told(topic: str, body: bytes = b"{}") -> dict[str, str]:
            _, _, headers = await world.call([body], {"content-length": str(len(body))}, topic)
            return {k: v for k, v in headers.items() if k in ("connection", "keep-alive")}

        closed, kept = {"connection": "close"}, {"keep-alive": "timeout=1"}
        assert await told("shop.orders") == await told("shop.nothing") == kept
        world.frontend.drain.announce()
        assert await told("shop.orders") == await told("shop.nothing") == closed
        # This one closes its connection anyway, which is said once.
        assert await told("shop.orders", bytes(200)) == closed
        world.nursery.start_soon(world.frontend.drain.run)
        await trio.sleep(11)
        assert await told("shop.orders") == closed


async def test_the_wait_for_load_balancers_begins_with_the_announcement(
    open_world, autojump_clock
) -> None:
    async with open_world(graceful_shutdown_initial_wait_ms=10_000) as world:
        world.frontend.drain.announce()
        await trio.sleep(7)
        began_s = trio.current_time()
        assert await world.frontend.drain.run()
        assert 3 <= trio.current_time() - began_s < 3.1


async def test_what_is_under_way_is_waited_for(open_world, autojump_clock) -> None:
    async with open_world(
        graceful_shutdown_initial_wait_ms=0, idle_timeout_ms=300, long_idle_timeout_ms=300
    ) as world:
        await world.add_topic("shop.orders")
        await world.publish()
        world.log.faults.delay_s = (0.250, 0.250)
        publication = world.admit()
        start_s = trio.current_time()
        assert await world.frontend.drain.run()
        assert 0.25 <= trio.current_time() - start_s < 0.3
        assert publication.is_done


async def test_the_wait_for_what_is_under_way_is_bounded(open_world, autojump_clock) -> None:
    async with open_world(
        graceful_shutdown_initial_wait_ms=0,
        graceful_shutdown_drain_ms=100,
        idle_timeout_ms=400,
    ) as world:
        await world.add_topic("shop.orders")
        world.log.faults.silent = True
        world.admit()
        start_s = trio.current_time()
        assert not await world.frontend.drain.run()
        assert 0.1 <= trio.current_time() - start_s < 0.15


async def test_readiness_is_what_the_node_says_while_it_serves(open_world, autojump_clock) -> None:
    parts = {"dependencies": lambda: [Dependency("log", "it is away", is_needed=True)]}
    async with open_world(parts=parts) as world:
        ready = await world.client.get("/status/ready")
        assert (ready.status_code, ready.text) == (503, "NOT_READY")
        assert (await world.client.get("/status/health")).text == "UP"
