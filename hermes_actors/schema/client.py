"""Requests to an external schema registry, by Confluent's paths. Trio coroutines."""

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
"""A longer answer is none: a schema of 256 KiB fits in, however it is written."""

LISTED_MAX = 100
"""The versions of a subject that are known: its newest. Older ones are found by their ids."""

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_SECRET_BYTES_MAX = 16_384
_CONNECTIONS_MAX = 12
_NUMBER_MAX = 2**31 - 1
# Not of the subject, but of who asks, or of the moment.
_OF_THE_ASKER = frozenset({401, 403, 407, 408, 421, 425, 429})
_KINDS = frozenset(each.value for each in SchemaKind)

T = TypeVar("T")


class RegistryAway(Exception):
    """No URL gave an answer; the text says why, without secrets."""


class BadAnswer(Exception):
    """An answer is none that a registry gives; the text says why."""


class _RegisteredSchema(Struct):
    id: int
    schema: str
    version: int = 0
    schemaType: str | None = None  # noqa: N815 -- the registry's word
    references: list[Any] | None = None


class _Id(Struct):
    id: int


class _Looked(Struct):
    id: int
    version: int


class _Text(Struct):
    schema: str
    schemaType: str | None = None  # noqa: N815 -- the registry's word
    references: list[Any] | None = None


class _Failure(Struct):
    message: str = ""
    error_code: int = 0


class RegistryClient:
    """Asks the configured URLs, in turn from the one that answered last. Its secrets are read anew
    for each connection's client, and never shown.

    `transport` is for tests. Raises StartupError for a file that cannot be used.
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
        """The subject of a topic, as the registry calls it."""
        return f"{self._config.subject_prefix}{topic}{self._config.subject_suffix}"

    async def look_up(self, topic: str, known: Mapping[int, SchemaVersion]) -> Listed:
        """The versions of a topic's subject, its newest LISTED_MAX. Of those in `known` only the
        newest that is still there is asked for again. Raises RegistryAway and BadAnswer.
        """
        path = f"/subjects/{quote(self.subject(topic), safe='')}/versions"
        content = await self._read(path)
        listed = set() if content is None else set(_decoded(content, list[int]))
        numbers = sorted(each for each in listed if 0 < each <= _NUMBER_MAX)[-LISTED_MAX:]
        if not numbers:
            return Listed()
        newest = await self._version(path, numbers[-1])
        compared = max((each for each in numbers if each in known), default=0)
        if compared:
            again = newest if compared == numbers[-1] else await self._version(path, compared)
            if again != known[compared]:
                # The subject was deleted, and made anew.
                known = {}
        versions: dict[int, SchemaVersion] = {}
        for number in numbers[:-1]:
            each = known.get(number) or await self._version(path, number)
            if isinstance(each, SchemaVersion):
                versions[number] = each
        if isinstance(newest, SchemaVersion):
            versions[numbers[-1]] = newest
            return Listed(versions)
        return Listed(versions, newest)

    async def _version(self, path: str, number: int) -> SchemaVersion | str:
        """Return one version, or why it cannot be used: "" where no topic has its language."""
        content = await self._read(f"{path}/{number}")
        if content is None:
            return ""
        found = _decoded(content, _RegisteredSchema)
        if found.version not in (0, number):
            raise BadAnswer(f"asked for version {number}, the registry answers {found.version}")
        schema = _usable(found.schema, found.schemaType, found.references)
        if isinstance(schema, str):
            return schema and f"version {number} {schema}"
        if not 0 < found.id <= _NUMBER_MAX:
            return f"version {number} has the id {found.id}, and records have room for 31 bits"
        return SchemaVersion(number, found.id, schema)

    async def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id; None when there is none that can be used. Raises RegistryAway
        and BadAnswer.
        """
        content = await self._read(f"/schemas/ids/{schema_id}")
        if content is None:
            return None
        found = _decoded(content, _Text)
        schema = _usable(found.schema, found.schemaType, found.references)
        return schema if isinstance(schema, Schema) else None

    async def register(self, topic: str, schema: Schema) -> SchemaVersion:
        """Make the schema a version of the topic's subject, if it is none yet.

        Raises Refused with the registry's own words, and Unavailable.
        """
        subject = f"/subjects/{quote(self.subject(topic), safe='')}"
        body = _body_of(schema)
        await self._change("POST", f"{subject}/versions", body, _Id)
        looked = await self._change("POST", subject, body, _Looked)
        if not (0 < looked.version <= _NUMBER_MAX and 0 < looked.id <= _NUMBER_MAX):
            raise Unavailable(
                f"The schema registry answers version {looked.version} and id {looked.id}, and "
                "records have room for 31 bits; the version is registered there"
            )
        return SchemaVersion(looked.version, looked.id, schema)

    async def delete(self, topic: str) -> list[int]:
        """Delete all versions of the topic's subject, if it is there. Raises Refused and
        Unavailable.
        """
        path = f"/subjects/{quote(self.subject(topic), safe='')}"
        try:
            status, content = await self._ask("DELETE", path, None)
        except RegistryAway as error:
            raise _away(error) from error
        if status == 404:
            return []
        return _changed(status, content, list[int])

    async def _change(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T:
        try:
            status, content = await self._ask(method, path, body)
        except RegistryAway as error:
            raise _away(error) from error
        return _changed(status, content, kind)

    async def _read(self, path: str) -> bytes | None:
        """The body of an answer; None where there is none of that name."""
        status, content = await self._ask("GET", path, None)
        return content if status == 200 else None

    async def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """The first answer that one of the URLs gives: 200, or what is wrong with the question."""
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
        headers = await self._credentials()
        if body is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        content, size_bytes = bytearray(), 0
        async with self._client.stream(method, url, content=body, headers=headers) as answer:
            # Read to its end, for a bounded time: leaving a stream in its middle leaks it. What is
            # packed, unasked, stays so: it may unpack to any size.
            is_packed = "Content-Encoding" in answer.headers
            async for part in answer.aiter_raw() if is_packed else answer.aiter_bytes():
                size_bytes += len(part)
                if size_bytes <= ANSWER_BYTES_MAX:
                    content += part
        return answer.status_code, bytes(content) if size_bytes <= ANSWER_BYTES_MAX else None

    async def _credentials(self) -> dict[str, str]:
        config = self._config
        if config.token_file:
            token = await _secret_in(config.token_file)
            if not token.isascii() or not token.isprintable():
                raise OSError(f"schema.token_file: {config.token_file} holds what is no token")
            return {"Authorization": f"Bearer {token}"}
        if config.user:
            password = await _secret_in(config.password_file)
            request = httpx.Request("GET", "http://registry.invalid")
            flow = httpx.BasicAuth(config.user, password).auth_flow(request)
            return {"Authorization": next(flow).headers["Authorization"]}
        return {}


def _usable(text: str, kind: str | None, references: list[Any] | None) -> Schema | str:
    """The schema, or why it cannot be used: "" when it is in a language that no topic has."""
    kind = kind or SchemaKind.AVRO.value
    if kind not in _KINDS:
        return ""
    if references:
        return "refers to other schemas, which is not supported: put all into one schema"
    if len(text.encode("utf-8", "surrogatepass")) > SCHEMA_BYTES_MAX:
        return f"has more than {SCHEMA_BYTES_MAX} bytes"
    return Schema(SchemaKind(kind), text)


def _body_of(schema: Schema) -> bytes:
    body = {"schema": schema.text}
    if schema.kind is not SchemaKind.AVRO:
        # Avro goes without saying, also to registries that know nothing else.
        body["schemaType"] = schema.kind.value
    return msgspec.json.encode(body)


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"the registry's answer is none: {error}") from error


def _changed(status: int, content: bytes, kind: type[T]) -> T:
    if status != 200:
        text = _words(content) or f"it answered {status}"
        raise Refused(f"The schema registry refuses: {text}", ErrorCode.SCHEMA_BAD_REQUEST)
    try:
        return _decoded(content, kind)
    except BadAnswer as error:
        raise Unavailable(f"{error}; try again") from error


def _away(error: RegistryAway) -> Unavailable:
    return Unavailable(f"The schema registry cannot be asked now: {error}; try again")


def _is_refusal(status: int, content: bytes) -> bool:
    """True if a registry says what is wrong with the question; not for the 404 of something else in
    its place, a proxy, say.
    """
    is_of_question = 400 <= status < 500 and status not in _OF_THE_ASKER
    return is_of_question and _failure(content).error_code > 0


def _failure(content: bytes | None) -> _Failure:
    try:
        return msgspec.json.decode(content or b"{}", type=_Failure)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Failure()


def _words(content: bytes | None) -> str:
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

    # Anew for each request, so that one that is replaced is used at once.
    return (await trio.to_thread.run_sync(read)).decode("utf-8", "replace").strip()


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"schema.ca_file: {ca_file} cannot be used: {error}; it is a PEM file of certificates"
        ) from error
