"""Calls the management API; a refusal becomes one line with a remedy."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from hermes_actors.cli.command_line.credentials import (
    SHOW_WHO,
    TLS_SETTINGS,
    authorization,
    tls_context,
)
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import MANAGEMENT_URL_DEFAULT, given
from hermes_actors.model.endpoints import is_loopback
from hermes_actors.runtime.network_causes import tls_cause

_TIMEOUT_S = 30.0
_SILENCE_S = 60.0
"""A stream is broken after this time without a line; management sends an empty one every 15 s."""
_ERROR_TEXT_MAX = 500

# Only for answers whose own text does not say it already.
_WAYS_OUT = {
    "GROUP_NOT_EXISTS": "create it with 'hermes group create', or see 'hermes group list'",
    "TOPIC_NOT_EXISTS": "see 'hermes topic list'",
    "SUBSCRIPTION_NOT_EXISTS": "see 'hermes subscription list TOPIC'",
    "TOPIC_ALREADY_EXISTS": "change it with 'hermes topic update'",
    "OWNER_SOURCE_NOT_FOUND": "use --owner Plaintext:<id>",
}


def quoted(name: str) -> str:
    """Quote a name as one path segment. Raises UsageWrong if it would change the path."""
    if name in ("", ".", ".."):
        # Clients and servers resolve these: deleting subscription '..' would delete its topic.
        raise UsageWrong(f"'{name}' is not a name")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise UsageWrong(f"{name!r} is not a name: it is not UTF-8") from error


def checked_url(url: str, option: str, example: str) -> str:
    """Return the URL without a trailing slash. Raises UsageWrong if it is not an http(s) URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Check here that the host name can be encoded, not in the middle of a run.
        is_good = parts.scheme in ("http", "https") and bool(host.encode("idna"))
        is_good = is_good and not any(c.isspace() or not c.isprintable() for c in url)
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageWrong(f"{option} '{url}': expected a URL like {example}")
    return url.rstrip("/")


class ManagementClient:
    """Client of one management API. Every failure raises CommandFailed with cause and remedy."""

    def __init__(self, url: str, *, asks: bool = True, timeout_s: float = _TIMEOUT_S) -> None:
        """`asks`: ask for a password on the terminal if there is no password file."""
        self._timeout_s = timeout_s
        self._url = checked_url(url, "--management", MANAGEMENT_URL_DEFAULT)
        shown = authorization(asks=asks)
        headers = {b"Authorization": shown.encode()} if shown else {}
        if reason := given("change_reason"):
            text = " ".join(reason.split())
            headers[b"Hermes-Change-Reason"] = text.encode("utf-8", "replace")
        self._client = httpx.Client(
            timeout=timeout_s,
            trust_env=not is_loopback(urlsplit(self._url).hostname or ""),
            # Only for https: loading the system's authorities takes longer than a plain request.
            verify=tls_context() or self._url.startswith("https:"),
            headers=headers,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, params: dict[str, str] | None = None) -> bytes:
        """Send a GET and return the body of its answer."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: Any, *, timeout_s: float | None = None) -> bytes:
        """POST JSON, or bytes as they are, and return the body of the answer."""
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self._call("POST", path, timeout_s, **sent)

    def put(self, path: str, body: Any, *, timeout_s: float | None = None) -> bytes:
        """PUT JSON and return the body of the answer."""
        return self._call("PUT", path, timeout_s, json=body)

    def delete(self, path: str) -> bytes:
        """Send a DELETE and return the body of its answer."""
        return self._call("DELETE", path)

    def stream_lines(self, path: str, params: dict[str, str]) -> Iterator[str]:
        """Yield the lines of a GET whose answer may be endless."""
        with (
            self._explained("GET", path, _SILENCE_S),
            self._client.stream(
                "GET", self._url + path, params=params, timeout=httpx.Timeout(_SILENCE_S)
            ) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise self._refusal("GET", path, answer.status_code, answer.content)
            yield from answer.iter_lines()

    def _call(
        self, method: str, path: str, timeout_s: float | None = None, **request: Any
    ) -> bytes:
        timeout_s = timeout_s or self._timeout_s
        with self._explained(method, path, timeout_s):
            answer = self._client.request(method, self._url + path, timeout=timeout_s, **request)
        if answer.is_success:
            return answer.content
        raise self._refusal(method, path, answer.status_code, answer.content)

    @contextmanager
    def _explained(self, method: str, path: str, timeout_s: float) -> Iterator[None]:
        way_out = "run the command again"
        if method != "GET":
            way_out = "it may have been done: check before you repeat it"
        try:
            yield
        except httpx.TimeoutException as error:
            raise CommandFailed(
                f"management at {self._url} did not answer {method} {path} within "
                f"{timeout_s:.0f} s; {way_out}"
            ) from error
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            raise CommandFailed(
                f"cannot reach management at {self._url}: {_reason(error)}; start one with "
                "'hermes dev', or name another with --management URL or HERMES_MANAGEMENT_URL"
            ) from error
        except httpx.HTTPError as error:
            raise CommandFailed(
                f"the connection to {self._url} broke off: {_reason(error).rstrip('.')}; {way_out}"
            ) from error
        except UnicodeEncodeError as error:
            raise UsageWrong(f"{error.object!r} cannot be sent: it is not UTF-8") from error

    def _refusal(self, method: str, path: str, status: int, content: bytes) -> "Refusal":
        """Turn an error answer into an exception."""
        code, text = error_of(content)
        way_out = _WAYS_OUT.get(code, "")
        if status == 401:
            way_out = SHOW_WHO
        if 300 <= status < 400:
            way_out = "redirects are not followed: use the address that it leads to"
        if not code and status in (404, 405):
            # A management API answers errors in JSON; a frontend does not know this path.
            way_out = f"is {self._url} a management API (default port 8090)?"
        message = f"the server refused {method} {path} ({status}{' ' + code if code else ''})"
        message += f": {text}" if text else ""
        return Refusal(message + (f"; {way_out}" if way_out else ""), status, code)


class Refusal(CommandFailed):
    """The server refused. `code` is from the error body, or empty."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def error_of(content: bytes) -> tuple[str, str]:
    """Return the code and the text of an error body; a body in another form is all text."""
    text = content[:_ERROR_TEXT_MAX].decode("utf-8", "replace").strip()
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return "", text
    if isinstance(body, dict) and "message" in body:
        # The schema registry's errors have a number, as in Confluent's API.
        return str(body.get("code", body.get("error_code", ""))), str(body["message"])
    return "", text


def _reason(error: Exception) -> str:
    return tls_cause(error, TLS_SETTINGS) or str(error) or type(error).__name__
