"""Checks and parses the fields of requests over HTTP/2."""

from collections.abc import Iterable
from typing import Any

from h2.events import RequestReceived
from h2.utilities import HeaderValidationFlags, normalize_inbound_headers, validate_headers
from hypercorn.utils import filter_pseudo_headers

from hermes_actors.publisher.edges.http1 import heads
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import ABSENT, CHUNKED

_FIELD_BYTES = 32


def check(headers: Iterable[Any], *, is_trailer: bool = False) -> list[Any]:
    """The fields, with one cookie. Raises ProtocolError if RFC 9113 does not allow them."""
    flags = HeaderValidationFlags(False, is_trailer, False, False)
    return list(validate_headers(normalize_inbound_headers(headers, flags), flags))


class Heads(heads.Heads):
    """Parses the heads of requests over HTTP/2, too."""

    def request_of(self, event: RequestReceived) -> Request:
        """Return the request with this head. Raises ProtocolError, and Malformed for a method or
        path that HTTP/1.1 does not allow either.
        """
        headers, has_body = event.headers, event.stream_ended is None
        key = (has_body, *headers)
        request = self._known.get(key)
        if request is None:
            request = self._parsed(check(headers), CHUNKED if has_body else ABSENT)
            size_bytes = sum(_FIELD_BYTES + len(name) + len(value) for name, value in headers)
            self._remember(key, size_bytes, request)
        return request

    def _parsed(self, headers: list[Any], expected_bytes: int) -> Request:
        pseudo = dict(headers)
        method, target = pseudo[b":method"].decode("latin-1"), pseudo.get(b":path", b"")
        if method not in heads.METHODS:
            raise heads.Malformed(heads.NOT_IMPLEMENTED)
        if not heads.TARGET.fullmatch(target):
            raise heads.Malformed(heads.BAD_REQUEST)
        pairs = filter_pseudo_headers(headers)
        fields = dict(pairs)
        if b"content-length" in fields:
            # h2 has checked that it is a number, and equal if it is repeated.
            expected_bytes = int(fields[b"content-length"])
        return Request(
            self._config, "2", method, target.decode("latin-1"), pairs, fields, expected_bytes
        )
