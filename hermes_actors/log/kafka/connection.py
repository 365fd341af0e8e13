"""Connects to one datacentre's Kafka: every connection of the package is made here.

Settings that cannot work are reported when the node starts, with the name of the field. Later
failures are explained in one line that names the datacentre and the field. Neither text contains
secrets.
"""

import asyncio
import logging
import os
import random
import socket
import ssl
from pathlib import Path
from typing import Any

from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.errors import StartupError
from hermes_actors.log.kafka.session import Session
from hermes_actors.runtime.backoff import backoff_s
from hermes_actors.runtime.network_causes import name_cause

_logger = logging.getLogger(__name__)

CONNECTIONS_IDLE_MS = 540_000
"""Idle connections are closed after this. A broker closes them after ten minutes, perhaps during a
request."""
RECONNECT_BACKOFF_MAX_S = 1.0
"""Maximum back-off, so that a cluster that is back is noticed soon."""
_GOODBYE_S = 1.0
_EXAMPLE = "for example kafka1.example.com:9092"


class KafkaCluster:
    """The Kafka of one datacentre: connects to its brokers, and explains failures.

    Raises StartupError for a file that is missing, unreadable or invalid, and for an invalid
    address. Certificates and the password are read again after their files have changed, so that
    they can be renewed while the node runs. While a file cannot be read, its last content is used.
    """

    def __init__(self, dc: str, cluster: KafkaClusterConfig, settings: KafkaConfig) -> None:
        self.dc = dc
        self.settings = settings
        self._cluster = cluster
        self._field = f"kafka.clusters.{dc}"
        _check(self._field, cluster)
        self._versions = self._file_versions()
        self._security = self._read_security()
        _quieten()
        if cluster.security_protocol == "SASL_PLAINTEXT" and cluster.sasl_mechanism == "PLAIN":
            _logger.warning(
                "%s.security_protocol: SASL_PLAINTEXT with PLAIN sends the password in the clear",
                self._field,
            )
        self._ends: dict[asyncio.Future[None], asyncio.Transport] = {}

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.dc} {','.join(self._cluster.bootstrap_servers)}>"

    @property
    def bootstrap_servers(self) -> list[str]:
        """The configured addresses, `host:port`."""
        return list(self._cluster.bootstrap_servers)

    async def connect(
        self, host: str, port: int, purpose: str, *, timeout_ms: int | None = None
    ) -> Session:
        """Open a connection to one broker, and log in. For the host loop.

        Raises OSError, asyncio.TimeoutError or KafkaError; `explain` turns them into a text.
        """
        connection = Session(
            host,
            port,
            client_id=client_id(purpose),
            request_timeout_ms=timeout_ms or self.settings.request_timeout_ms,
            max_idle_ms=CONNECTIONS_IDLE_MS,
            **self.security(),
        )
        try:
            await connection.connect()
        finally:
            self._follow(connection)
        return connection

    async def close(self) -> None:
        """Wait for the end of closed connections; abort those that take longer than a second.

        A TLS connection ends with an exchange, and asyncio would warn if its loop were closed
        before that.
        """
        if self._ends:
            await asyncio.wait(set(self._ends), timeout=_GOODBYE_S)
        for transport in list(self._ends.values()):
            transport.abort()
        if self._ends:
            await asyncio.wait(set(self._ends), timeout=_GOODBYE_S)

    def _follow(self, connection: AIOKafkaConnection) -> None:
        protocol = connection._protocol
        transport = None if protocol is None else protocol._transport
        if transport is None:
            return
        ended = connection._closed_fut
        self._ends[ended] = transport
        ended.add_done_callback(lambda done: self._ends.pop(done, None))

    def reconnect_delay_s(self, attempt: int, rng: random.Random) -> float:
        """Return the wait before attempt `attempt` (the first is 1): exponential back-off with
        jitter.
        """
        first_s = self.settings.reconnect_backoff_ms / 1_000
        max_s = max(RECONNECT_BACKOFF_MAX_S, first_s)
        return backoff_s(attempt - 1, rng.random(), first_s, max_s)

    def explain(self, error: BaseException, address: str = "") -> str:
        """Return one line for an operator: the datacentre, the failure, and the field to check."""
        where = f"Kafka of {self.dc}" + (f" at {address}" if address else "")
        cluster, field = self._cluster, self._field
        certificate = _certificate_error(error)
        if certificate is not None:
            return (
                f"{where}: its certificate is not accepted ({_tls_reason(certificate)}); "
                f"see {field}.ca_file and the names in {field}.bootstrap_servers"
            )
        if isinstance(error, errors.UnsupportedSaslMechanismError | errors.IllegalSaslStateError):
            return (
                f"{where}: does not accept {cluster.sasl_mechanism}; see {field}.sasl_mechanism "
                f"and {field}.security_protocol"
            )
        if _is_login_refused(error):
            return (
                f"{where}: refused the log-in of '{cluster.sasl_username}' with "
                f"{cluster.sasl_mechanism}; see {field}.sasl_username and "
                f"{field}.sasl_password_file"
            )
        if isinstance(error, ssl.SSLError):
            return (
                f"{where}: no TLS connection ({_tls_reason(error)}); see "
                f"{field}.security_protocol, {field}.certificate_file and {field}.key_file"
            )
        if isinstance(error, TimeoutError | errors.RequestTimedOutError):
            return f"{where}: no answer within {self.settings.request_timeout_ms} ms"
        if isinstance(error, socket.gaierror):
            return f"{where}: {name_cause(error)}"
        if isinstance(error, ConnectionRefusedError):
            return f"{where}: the connection was refused"
        if isinstance(error, errors.KafkaConnectionError) and str(error).endswith("closed"):
            hint = f"{field}.security_protocol"
            if cluster.security_protocol.endswith("SSL") and not cluster.certificate_file:
                hint += f" and {field}.certificate_file"
            return f"{where}: ended the connection; if this repeats, see {hint}"
        return f"{where}: {_first_line(error)}"

    def security(self) -> dict[str, Any]:
        """Return a client's security arguments, from the current files."""
        # Making a TLS context may block the loop for 20 ms, so only if a file has changed.
        versions = self._file_versions()
        if versions != self._versions:
            try:
                self._security = self._read_security()
                self._versions = versions
            except StartupError:
                # A file that is just being replaced must not stop a running node's log.
                return self._security
        return self._security

    def _file_versions(self) -> list[tuple[int, ...] | None]:
        cluster = self._cluster
        files = (cluster.ca_file, cluster.certificate_file, cluster.key_file)
        return [_version(path) for path in (*files, cluster.sasl_password_file) if path]

    def _read_security(self) -> dict[str, Any]:
        cluster = self._cluster
        security: dict[str, Any] = {"security_protocol": cluster.security_protocol}
        if cluster.security_protocol.endswith("SSL"):
            security["ssl_context"] = self._ssl_context()
        if cluster.security_protocol.startswith("SASL"):
            security["sasl_mechanism"] = cluster.sasl_mechanism
            security["sasl_plain_username"] = cluster.sasl_username
            security["sasl_plain_password"] = self._password()
        return security

    def _ssl_context(self) -> ssl.SSLContext:
        cluster = self._cluster
        for name in ("ca_file", "certificate_file", "key_file"):
            if path := getattr(cluster, name):
                _read(f"{self._field}.{name}", path)
        try:
            context = ssl.create_default_context(cafile=cluster.ca_file or None)
        except (ssl.SSLError, OSError) as error:
            raise StartupError(
                f"{self._field}.ca_file: {cluster.ca_file} holds no certificate in PEM form "
                f"({error}); name the file of the authority that signed the brokers' certificates"
            ) from error
        if cluster.certificate_file:
            try:
                context.load_cert_chain(cluster.certificate_file, cluster.key_file or None)
            except (ssl.SSLError, OSError) as error:
                raise StartupError(
                    f"{self._field}.certificate_file: {cluster.certificate_file} and its key_file "
                    f"are not a certificate in PEM form with its key ({error})"
                ) from error
        return context

    def _password(self) -> str:
        field = f"{self._field}.sasl_password_file"
        password = _read(field, self._cluster.sasl_password_file).rstrip("\r\n")
        if not password:
            raise StartupError(f"{field}: {self._cluster.sasl_password_file} is empty")
        return password


def client_id(purpose: str) -> str:
    """Return the client id that brokers see."""
    return f"hermes-{purpose}"


def _quieten() -> None:
    # aiokafka logs each failed attempt, some with a traceback; this package logs the reason once. A
    # level that has been set is kept.
    logger = logging.getLogger("aiokafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def _check(field: str, cluster: KafkaClusterConfig) -> None:
    if not cluster.bootstrap_servers:
        raise StartupError(f"{field}.bootstrap_servers: is empty; name a broker, {_EXAMPLE}")
    for address in cluster.bootstrap_servers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise StartupError(
                f"{field}.bootstrap_servers: '{address}' is not a host and a port; {_EXAMPLE}"
            )
    if bool(cluster.certificate_file) < bool(cluster.key_file):
        raise StartupError(
            f"{field}.key_file: goes together with {field}.certificate_file; set both or neither"
        )
    if cluster.security_protocol.startswith("SASL"):
        for name in ("sasl_username", "sasl_password_file"):
            if not getattr(cluster, name):
                raise StartupError(
                    f"{field}.{name}: is empty, and {cluster.security_protocol} needs it"
                )


def _read(field: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StartupError(
            f"{field}: {path} cannot be read: {error.strerror}; name another file"
        ) from error
    except UnicodeDecodeError as error:
        raise StartupError(f"{field}: {path} is not text; name another file") from error


def _version(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 -- once for each connection
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_login_refused(error: BaseException) -> bool:
    # Code 58 is SASL_AUTHENTICATION_FAILED. `Brokers` turns the AssertionError or ValueError of a
    # wrong SCRAM answer into AuthenticationFailedError.
    return isinstance(error, errors.AuthenticationFailedError) or (
        isinstance(error, errors.BrokerResponseError) and error.errno == 58
    )


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return seen
        seen = seen.__cause__
    return None


def _tls_reason(error: ssl.SSLError) -> str:
    # Set by OpenSSL; an error that Python itself raises has neither.
    detail = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    return str(detail or _first_line(error))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
