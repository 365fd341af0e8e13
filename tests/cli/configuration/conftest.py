"""Whole clusters in memory for the command line: the real management API in a thread."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import msgspec
import pytest
import trio
from typer.testing import CliRunner, Result

from hermes_actors.cli.main import app
from hermes_actors.config import Config, ManagementConfig
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.runtime.bridge import open_bridge
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.security.account import Credentials, Unauthenticated
from tests.management.conftest import Person
from tests.management.shared_apps import Apps


class AllAreAdmins:
    async def identify(self, credentials: Credentials) -> Caller:
        return Person("admin", (), is_admin=True)

    def refusal(self) -> Unauthenticated:
        return Unauthenticated("nobody is asked here", ())


class Cluster:
    """A cluster without nodes: its management, as the command line reaches it."""

    def __init__(self) -> None:
        self.url = ""
        self.before: list[Callable[[Cluster], object] | None] = []
        """Called before the next requests, one for each."""
        self.is_there = threading.Event()

    async def run(self) -> None:
        clock, rng = SystemClock(), random.Random(1)
        log = MemoryLog("dc1", clock)
        self.metadata = Metadata(log, clock=clock, ids=seeded_ids(rng), rng=rng, entries_max=100)
        settings = ManagementConfig(allow_removal=True)
        config = msgspec.structs.replace(Config(), management=settings)
        self.stop = trio.Event()
        self.token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery, open_bridge() as bridge:
            nursery.start_soon(Registry(self.metadata).run, self.stop)
            await self.metadata.wait_current()
            parts = Administration(
                self.metadata, log, config, clock, security=AllAreAdmins(), pool=InlinePool()
            )
            apps = Apps()
            transport = httpx.ASGITransport(app=apps.app(parts, bridge, config, []))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as self.client:
                self.is_there.set()
                await self.stop.wait()
            apps.give_back()

    async def answer(self, method: str, path: str, body: bytes, kind: str) -> httpx.Response:
        headers = {"content-type": kind} if kind else {}
        return await self.client.request(method, path, content=body, headers=headers)

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "") -> httpx.Response:
        return trio.from_thread.run(self.answer, method, path, body, kind, trio_token=self.token)


@contextmanager
def cluster_in_memory() -> Iterator[Cluster]:
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one write, else Nagle costs 40 ms a request

        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if cluster.before and (first := cluster.before.pop(0)):
                first(cluster)
            answer = cluster.request(
                self.command, self.path, body, self.headers.get("Content-Type", "")
            )
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = _take  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    loop = threading.Thread(target=trio.run, args=(cluster.run,), daemon=True)
    loop.start()
    while not cluster.is_there.wait(1):
        assert loop.is_alive(), "the cluster has failed; its error is above"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        cluster.url = f"http://127.0.0.1:{httpd.server_port}"
        server = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        server.start()
        yield cluster
        httpd.shutdown()
        server.join()
    cluster.token.run_sync_soon(cluster.stop.set)
    loop.join()


@pytest.fixture
def clusters() -> Iterator[Callable[[], Cluster]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(cluster_in_memory())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command line against a cluster."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    def run(cluster: Cluster, *args: object, stdin: str | None = None) -> Result:
        monkeypatch.setenv("HERMES_MANAGEMENT_URL", cluster.url)
        return CliRunner().invoke(
            app, [str(each) for each in args], input=stdin, catch_exceptions=False
        )

    return run
