"""The client of an external schema registry with Confluent's API. Trio coroutines."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import trio
from msgspec import Struct

from hermes_actors.config.schema import SchemaConfig
from hermes_actors.errors import ErrorCode, Refused, StartupError, Unavailable
from hermes_actors.model.redaction import without_secrets
from hermes_actors.model.schema import SCHEMA_BYTES_MAX, Schema, SchemaKind
from hermes_actors.schema.known import Listed
from hermes_actors.schema.source import SchemaVersion

ANSWER_BYTES_MAX = 2_097_152
"""Maximum size of an answer. A schema of 256 KiB fits, however it is encoded."""

LISTED_MAX = 100
"""How many versions of a subject are kept, the newest ones. Older ones are found by their ids."""

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_SECRET_BYTES_MAX = 16_384
_CONNECTIONS_MAX = 12
_NUMBER_MAX = 2**31 - 1
# These statuses concern the client or the moment, not the subject.
_OF_THE_ASKER = frozenset({401, 403, 407, 408, 421, 425, 429})
_KINDS = frozenset(each.value for each in SchemaKind)

T = TypeVar("T")


class NoAnswer(Unavailable):
    """The registry gave no usable answer; `reason` says why, without secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The schema registry is not available now: {reason}; try again")
        self.reason = reason


class RegistryAway(NoAnswer):
    """No URL answered."""


class BadAnswer(NoAnswer):
    """An answer does not come from a schema registry."""


class _Answer(Struct):
    """The fields of all answers that are objects."""

    id: int = 0
    version: int = 0
    schema: str = ""
    schemaType: str | None = None  # noqa: N815 -- the registry's word
    references: list[Any] | None = None
    message: str = ""
    error_code: int = 0


class RegistryClient:
    """Asks the configured URLs in turn, beginning with the one that answered last. Secrets are read
    for each request and never shown.

    `transport` is for tests. Raises StartupError for an unusable file.
    """

    def __init__(
        self, config: SchemaConfig, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._config = config
        self._urls = [each.rstrip("/") for each in config.urls]
        self._first = 0
        self.requests = 0
        self.failures = 0
        self._client = httpx.AsyncClient(
            verify=_trusting(config.ca_file),
            transport=transport,
            timeout=config.timeout_ms / 1_000,
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
            follow_redirects=False,
            trust_env=False,
            headers={
                "Accept": f"{_MEDIA_TYPE}, application/json",
                "Accept-Encoding": "identity",
            },
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def subject(self, topic: str) -> str:
        """The subject of a topic, by the configured naming."""
        return f"{self._config.subject_prefix}{topic}{self._config.subject_suffix}"

    async def look_up(self, topic: str, known: Mapping[int, SchemaVersion]) -> Listed:
        """Return the newest LISTED_MAX versions of a topic's subject. Of those in `known`, only the
        newest is fetched again, which shows whether the subject was deleted and created again.
        Raises NoAnswer.
        """
        path = f"{self._path(topic)}/versions"
        content = await self._read(path)
        listed = set() if content is None else set(_decoded(content, list[int]))
        numbers = sorted(each for each in listed if 0 < each <= _NUMBER_MAX)[-LISTED_MAX:]
        compared = max(known.keys() & set(numbers), default=0)
        versions: dict[int, SchemaVersion] = {}
        unusable = ""
        for number in reversed(numbers):
            each = known.get(number) if number < compared else None
            found = each or await self._version(path, number)
            if number == compared and found != known[compared]:
                known = {}
            if isinstance(found, SchemaVersion):
                versions[number] = found
            elif number == numbers[-1]:
                unusable = found
        return Listed(dict(sorted(versions.items())), unusable)

    async def _version(self, path: str, number: int) -> SchemaVersion | str:
        """Return one version, or why it is not usable; empty string if its language is not
        supported.
        """
        content = await self._read(f"{path}/{number}")
        if content is None:
            return ""
        found = _decoded(content, _Answer)
        if found.version not in (0, number):
            raise BadAnswer(f"asked for version {number}, the registry answers {found.version}")
        schema = _usable(found)
        if isinstance(schema, str):
            return schema and f"version {number} {schema}"
        if not 0 < found.id <= _NUMBER_MAX:
            return f"version {number} has the id {found.id}, and records have room for 31 bits"
        return SchemaVersion(number, found.id, schema)

    async def by_id(self, schema_id: int) -> Schema | None:
        """Return the schema with this id; None if there is no usable one. Raises NoAnswer."""
        content = await self._read(f"/schemas/ids/{schema_id}")
        schema = None if content is None else _usable(_decoded(content, _Answer))
        return schema if isinstance(schema, Schema) else None

    async def register(self, topic: str, schema: Schema) -> SchemaVersion:
        """Register the schema as a version of the topic's subject, if it is not one yet. Raises
        Refused with the registry's message; Unavailable.
        """
        body = _body_of(schema)
        await self._change("POST", f"{self._path(topic)}/versions", body)
        content = await self._change("POST", self._path(topic), body)
        found = _decoded(content or b"{}", _Answer)
        if not (0 < found.version <= _NUMBER_MAX and 0 < found.id <= _NUMBER_MAX):
            raise Unavailable(
                f"The schema registry answers version {found.version} and id {found.id}, and "
                "records have room for 31 bits; the version is registered there"
            )
        return SchemaVersion(found.version, found.id, schema)

    async def delete(self, topic: str) -> list[int]:
        """Delete all versions of the topic's subject, if it exists. Raises Refused and
        Unavailable.
        """
        content = await self._change("DELETE", self._path(topic), None, missing=404)
        return [] if content is None else _decoded(content, list[int])

    def _path(self, topic: str) -> str:
        return f"/subjects/{quote(self.subject(topic), safe='')}"

    async def _change(
        self, method: str, path: str, body: bytes | None, missing: int = 0
    ) -> bytes | None:
        status, content = await self._ask(method, path, body)
        if status in (200, missing):
            return content if status == 200 else None
        text = _words(content) or f"it answered {status}"
        raise Refused(f"The schema registry refuses: {text}", ErrorCode.SCHEMA_BAD_REQUEST)

    async def _read(self, path: str) -> bytes | None:
        """The body of an answer; None if the registry knows no such name."""
        status, content = await self._ask("GET", path, None)
        return content if status == 200 else None

    async def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Return the first usable answer of a URL: 200, or an error in the request."""
        reasons = []
        for attempt in range(len(self._urls)):
            place = (self._first + attempt) % len(self._urls)
            url = self._urls[place]
            self.requests += 1
            try:
                with trio.fail_after(self._config.timeout_ms / 1_000):
                    status, content = await self._answer(method, url + path, body)
            except trio.TooSlowError:
                reason = f"no answer within {self._config.timeout_ms} ms"
            except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
                reason = without_secrets(str(error)) or type(error).__name__
            else:
                if content is not None and (status == 200 or _is_refusal(status, content)):
                    self._first = place
                    return status, content
                reason = _why_none(status, content)
            self.failures += 1
            reasons.append(f"{url}: {reason}")
        raise RegistryAway("; ".join(reasons))

    async def _answer(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes | None]:
        headers = {} if body is None else {"Content-Type": _MEDIA_TYPE}
        auth, config = None, self._config
        if config.user:
            auth = httpx.BasicAuth(config.user, await _secret_in(config.password_file))
        elif config.token_file:
            token = await _secret_in(config.token_file)
            if not token.isascii() or not token.isprintable():
                raise OSError(f"schema.token_file: {config.token_file} does not hold a token")
            headers["Authorization"] = f"Bearer {token}"
        content, size_bytes = bytearray(), 0
        asking = self._client.stream(method, url, content=body, headers=headers, auth=auth)
        async with asking as answer:
            # Read to the end, within the time limit: a stream abandoned in the middle leaks.
            async for part in answer.aiter_bytes():
                size_bytes += len(part)
                if size_bytes <= ANSWER_BYTES_MAX:
                    content += part
        return answer.status_code, bytes(content) if size_bytes <= ANSWER_BYTES_MAX else None


def _usable(found: _Answer) -> Schema | str:
    """The schema, or why it is not usable; empty string if its language is not supported."""
    kind = found.schemaType or SchemaKind.AVRO.value
    if kind not in _KINDS:
        return ""
    if not found.schema:
        raise BadAnswer("it answers with no schema")
    if found.references:
        return "refers to other schemas, which is not supported: put all into one schema"
    if len(found.schema.encode("utf-8", "surrogatepass")) > SCHEMA_BYTES_MAX:
        return f"has more than {SCHEMA_BYTES_MAX} bytes"
    return Schema(SchemaKind(kind), found.schema)


def _body_of(schema: Schema) -> bytes:
    body = {"schema": schema.text}
    if schema.kind is not SchemaKind.AVRO:
        # Avro is the default, also for registries that support nothing else.
        body["schemaType"] = schema.kind.value
    return msgspec.json.encode(body)


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"its answer is not a registry's: {error}") from error


def _is_refusal(status: int, content: bytes) -> bool:
    """True if a registry refuses the request; False for a 404 from something else, for example a
    proxy.
    """
    is_of_question = 400 <= status < 500 and status not in _OF_THE_ASKER
    return is_of_question and _failure(content).error_code > 0


def _failure(content: bytes) -> _Answer:
    try:
        return msgspec.json.decode(content, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Answer()


def _words(content: bytes) -> str:
    return without_secrets(_failure(content).message)


def _why_none(status: int, content: bytes | None) -> str:
    if 300 <= status < 400:
        return f"answered {status}, and redirects are not followed; name the registry itself"
    if content is None:
        return f"answered more than {ANSWER_BYTES_MAX} bytes"
    words = _words(content)
    if 400 <= status < 500 and status not in _OF_THE_ASKER:
        words = "not as a schema registry does; see schema.urls"
    return f"answered {status}{': ' if words else ''}{words}"


async def _secret_in(path: str) -> str:
    def read() -> bytes:
        with Path(path).open("rb") as file:
            return file.read(_SECRET_BYTES_MAX)

    # Read for each request, so that a replaced secret is used at once.
    return (await trio.to_thread.run_sync(read)).decode("utf-8", "replace").strip()


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"schema.ca_file: {ca_file} cannot be used: {error}; it is a PEM file of certificates"
        ) from error
