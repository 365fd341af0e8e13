"""Two datacentres on this machine: a Kafka for each, and `hermes node` processes that know both.

All methods block; call them in a thread if a load runs at the same time.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from hermes_chaos.live.proxy import Link, Proxy, proxy_in_thread
from hermes_chaos.wanted import topic_body
from hermes_local.kafka import Cluster
from hermes_local.ports import free_ports

DCS = ("dc1", "dc2")
_READY_S = 180.0
_END_S = 90.0
_ASK_S = 60.0


class NodeDidNotStart(Exception):
    """The node ended, or did not report ready in time. The message is its output."""


class NodeProcess:
    """One `hermes node`, restarted with the same name, folder and ports."""

    def __init__(self, name: str, folder: Path, variables: Mapping[str, str]) -> None:
        self.name = name
        self._folder = folder
        self._port, self._management_port, self._status_port = free_ports(3)
        self._variables = {
            "HERMES_NODE": name,
            "HERMES_FRONTEND_PORT": str(self._port),
            "HERMES_MANAGEMENT_PORT": str(self._management_port),
            "HERMES_STATUS_PORT": str(self._status_port),
            "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
            **variables,
        }
        self.source: Path | None = None
        """The checkout whose code its next start runs; None: the code that this process runs."""
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """The address for publishing and status."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def management(self) -> str:
        """The address of its management, if it has that role."""
        return f"http://127.0.0.1:{self._management_port}"

    @property
    def is_running(self) -> bool:
        """True while its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id. Only while it runs."""
        assert self._process is not None, "it is begun first"
        return self._process.pid

    def begin(self) -> None:
        """Start it without waiting."""
        with (self._folder / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hermes_actors", "node", "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.source,
                env={**os.environ, **self._variables},
            )

    def wait_ready(self) -> None:
        """Wait until it reports ready. Raises NodeDidNotStart."""
        assert self._process is not None, "it is begun first"
        process, stdout = self._process, self._process.stdout
        assert stdout is not None
        too_late = threading.Timer(_READY_S, process.kill)
        too_late.start()
        try:
            line = stdout.readline()
        finally:
            too_late.cancel()
        if not line.startswith("{"):
            said = self.said[-2_000:]
            raise NodeDidNotStart(f"{self.name} was not ready within {_READY_S:.0f} s: {said}")

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it has ended."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it with SIGTERM, and wait until it has drained."""
        self._end(signal.SIGTERM)

    def beside(self, *arguments: str, timeout_s: float) -> tuple[int, str]:
        """Run a hermes command in its environment, as `kubectl exec` does. Return exit code and
        output.
        """
        ended = subprocess.run(  # noqa: S603 -- the caller's own words
            [sys.executable, "-m", "hermes_actors", *arguments],
            env={**os.environ, **self._variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return ended.returncode, ended.stdout.strip()

    @property
    def said(self) -> str:
        """Its log."""
        return (self._folder / f"{self.name}.log").read_text()

    def pause(self) -> None:
        """Pause it with SIGSTOP: its connections stay open, but it does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


class Site:
    """Both Kafkas and three nodes: `first` and `second` take messages in dc1, `other` is in dc2.

    `first` and `other` have management. `more` nodes are given as (datacentre, name, roles). A
    proxy in front of dc1's Kafka can slow it down. `variables` are HERMES_… variables for every
    node; with `delivers` those three are consumers, too. As a context manager it starts and ends
    everything.
    """

    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str],
        *,
        heap_mb: int = 384,
        more: Sequence[tuple[str, str, str]] = (),
        delivers: bool = False,
    ) -> None:
        self.folder = folder
        self._delivers = delivers
        self._stack = ExitStack()
        self._variables = dict(variables)
        self._heap_mb = heap_mb
        self._wanted = more
        self.more: list[NodeProcess] = []
        """The nodes besides the three, also those added later."""
        self.kafka: dict[str, Cluster] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._proxy: Proxy = stack.enter_context(
                proxy_in_thread(
                    lambda: [Link(("127.0.0.1", 1), port=free_ports(1)[0], is_kafka=False)]
                )
            )
            self._link = self._proxy.links[0]
            self.kafka = {
                "dc1": Cluster(
                    self.folder / "kafka-dc1",
                    advertised=[self._link.address],
                    heap_mb=self._heap_mb,
                ),
                "dc2": Cluster(self.folder / "kafka-dc2", heap_mb=self._heap_mb),
            }
            for cluster in self.kafka.values():
                stack.callback(cluster.kill)
            broker = self.kafka["dc1"].brokers[0]
            self._link.upstream = (broker.host, broker.port)
            self.at_once(*(cluster.start for cluster in self.kafka.values()))
            self.first = self._node("dc1", "dc1-first", "frontend,management")
            self.second = self._node("dc1", "dc1-second", "frontend")
            self.other = self._node("dc2", "dc2-other", "frontend,management")
            stack.callback(self._kill_more)
            for node in self.nodes:
                stack.callback(node.kill)
                node.begin()
            for node in self.nodes:
                node.wait_ready()
            # Two cores start two processes fastest.
            for first in range(0, len(self._wanted), 2):
                self.add(*self._wanted[first : first + 2])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def nodes(self) -> Sequence[NodeProcess]:
        """The three nodes."""
        return (self.first, self.second, self.other)

    @property
    def frontends(self) -> list[str]:
        """The addresses of dc1's frontends."""
        return [self.first.url, self.second.url]

    def add(self, *wanted: tuple[str, str, str]) -> list[NodeProcess]:
        """Start more nodes, each as (datacentre, name, roles), and wait until they are ready."""
        nodes = [self._node(*each) for each in wanted]
        self.more += nodes
        for node in nodes:
            node.begin()
        for node in nodes:
            node.wait_ready()
        return nodes

    def create_topic(self, name: str, **fields: Any) -> None:
        """Create a topic and its group; return when both datacentres' nodes know it."""
        management = self.first.management
        pause = threading.Event()
        status, said = 503, None
        for _ in range(int(_READY_S / 0.1)):
            ask("POST", f"{management}/groups", {"groupName": name.partition(".")[0]})
            status, said = ask("POST", f"{management}/topics", topic_body(name, **fields))
            if status not in (404, 503):
                break
            # A busy machine's Kafka is late; what it stored nevertheless exists then.
            pause.wait(0.1)
        assert status == 201 or "already exists" in str(said), said
        for node in self.nodes:
            for _ in range(int(_READY_S / 0.1)):
                # A topic accepts an empty message, which does not count in the load.
                if ask("POST", f"{node.url}/topics/{name}", {})[0] in (201, 202):
                    break
                pause.wait(0.1)
            else:
                raise NodeDidNotStart(f"{node.name} does not take messages for {name}")

    def _kill_more(self) -> None:
        for node in self.more:
            node.kill()

    def pause_kafka(self, dc: str) -> None:
        """Pause a broker with SIGSTOP: its connections stay open, but it answers nothing."""
        self.kafka[dc].brokers[0].pause()

    def resume_kafka(self, dc: str) -> None:
        """Resume the broker with SIGCONT."""
        self.kafka[dc].brokers[0].resume()

    def kill_kafka(self, *dcs: str) -> None:
        """Kill brokers with SIGKILL."""
        for dc in dcs:
            self.kafka[dc].brokers[0].kill()

    def start_kafka(self, *dcs: str) -> None:
        """Start killed brokers, and wait until they serve."""
        self.at_once(*(self.kafka[dc].start for dc in dcs))

    def lose_dc2(self) -> None:
        """Kill all of dc2 with SIGKILL, and delete its Kafka's data and its node's files."""
        self.other.kill()
        self.kill_kafka("dc2")
        broker = self.kafka["dc2"].brokers[0]
        for folder in (broker.folder, self.folder / "spools" / f"dc2.{self.other.name}"):
            shutil.rmtree(folder)
        broker.folder.mkdir()

    def slow_kafka(self, delay_s: float) -> None:
        """Delay the answers of dc1's Kafka by this much from now on."""
        self._proxy.do(lambda: setattr(self._link.answers, "latency_s", delay_s))

    @staticmethod
    def at_once(*steps: Any) -> None:
        """Run these at the same time; return when all have ended."""
        with ThreadPoolExecutor(max(len(steps), 1)) as pool:
            list(pool.map(lambda step: step(), steps))

    def _node(self, dc: str, name: str, roles: str) -> NodeProcess:
        servers = {each: self.kafka[each].bootstrap_servers[0] for each in DCS}
        return NodeProcess(
            name,
            self.folder,
            {
                "HERMES_DC": dc,
                "HERMES_ROLES": f"{roles},consumers" if self._delivers else roles,
                "HERMES_MANAGEMENT_TOPIC_PARTITIONS": "4",
                "HERMES_LOG_DIRECTORY": str(self.folder / name),
                "HERMES_SPOOL_DIRECTORY": str(self.folder / "spools"),
                "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": servers["dc1"],
                "HERMES_KAFKA_CLUSTERS_DC2_BOOTSTRAP_SERVERS": servers["dc2"],
                "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
                **self._variables,
            },
        )


def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    """Send a JSON request. Return the status and the decoded answer (None if empty or not JSON)."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=_ASK_S)
    try:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if content is not None else {}
        connection.request(method, parts.path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, None
    finally:
        connection.close()
