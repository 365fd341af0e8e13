"""Hostile bytes for an HTTP/1.1 server: those of one connection, split as a network may
split them.
"""

import random
from itertools import pairwise

HOST = b"Host: a\r\n"
LENGTHS = (
    b"2", b"02", b"+2", b"-2", b"0x2", b"2 ", b" 2", b"2,2", b"2, 2", b"", b"\xb2", b"2\x0b",
    b"99999999999999999999", b"0", b"2.0", b"1_0", b"\xd9\xa2",
)  # fmt: skip
CODINGS = (
    b"chunked", b"CHUNKED", b" chunked ", b"xchunked", b"chunked, identity", b"gzip, chunked",
    b"chunked, chunked", b"identity", b"\x0bchunked", b"chunked\x00", b'"chunked"', b"chunked;a",
    b"", b"chu\r\n nked", b"chunked\r\n", b",chunked", b"gzip",
)  # fmt: skip
NAMES = (
    b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding ", b" Transfer-Encoding",
    b"Transfer_Encoding", b"Transfer-Encoding\t", b"Content-Length", b"content-length",
    b"Content-Length ", b"\x00Content-Length", b"Content Length", b"Content-Length\x0b",
)  # fmt: skip
LARGE = b"\r\n0\r\n\r\n" + b"x" * 2_042
CHUNKS = (
    b"2\r\n{}\r\n0\r\n\r\n", b"2;a=b\r\n{}\r\n0;c\r\n\r\n", b"2\n{}\n0\n\n", b"2\r\n{}0\r\n\r\n",
    b"2 \r\n{}\r\n0\r\n\r\n", b" 2\r\n{}\r\n0\r\n\r\n", b"0x2\r\n{}\r\n0\r\n\r\n",
    b"+2\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\n0\r\nX: y\r\n\r\n", b"2\r\n{}\r\n0\r\n X: y\r\n\r\n",
    b"2\r\n{}\r\n00\r\n\r\n", b"2\r\n{}\r\n0\r\n\n", b"2\r{}\r0\r\r", b"2\r\n{}\r\n-0\r\n\r\n",
    b"ffffffffffffffff2\r\n{}\r\n0\r\n\r\n", b"2;\n\r\n{}\r\n0\r\n\r\n",
    b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"2\r\n{}\r\n0\r\nContent-Length: 3\r\n\r\n",
    b"2\r\n{}\r\n0\r\nX: y\n\r\n", b"1;" + b"e" * 3_000 + b"\r\nx\r\n0\r\n\r\n",
    b"2;a=\"\r\n\r\n\"\r\n{}\r\n0\r\n\r\n",
    *[each.replace(b"@", LARGE) for each in (
        b"801\r\n@\r\n0\r\n\r\n", b"801\r\n@\r\n2\r\n{}\r\n0801\r\n@\r\n0\r\n\r\n",
        b"801\r\n@0\r\n\r\n", b"801\r\n@xx0\r\n\r\n", b"800\r\n@\r\n0\r\n\r\n",
        b"802\r\n@\r\n0\r\n\r\n", b"801\n@\n0\n\n", b"801 \r\n@\r\n0\r\n\r\n",
        b"801;a\r\n@\r\n0\r\n\r\n", b"801\r\n@\n0\r\n\r\n",
    )],
)  # fmt: skip
LINES = (
    b"POST /topics/shop.orders HTTP/1.1\r\n", b"POST  /topics/shop.orders HTTP/1.1\r\n",
    b"POST /topics/shop.orders  HTTP/1.1\r\n", b"POST /topics/shop.orders HTTP/1.1 \r\n",
    b"POST\t/topics/shop.orders HTTP/1.1\r\n", b"\r\nPOST /topics/shop.orders HTTP/1.1\r\n",
    b"\nGET / HTTP/1.1\r\n", b" GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r",
    b"GET / HTTP/2.0\r\n", b"GET / HTTP/1.2\r\n", b"GET / HTTP/1.0\r\n", b"GET / HTTP/0.9\r\n",
    b"GET /\r\n", b"GET / http/1.1\r\n", b"get / HTTP/1.1\r\n", b"GET /\x00 HTTP/1.1\r\n",
    b"GET /\xc3\xa4 HTTP/1.1\r\n", b"GET /a b HTTP/1.1\r\n", b"SOURCE / ICE/1.0\r\n",
    b"OPTIONS * RTSP/1.0\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n",
    b"GET http://a/status/ready HTTP/1.1\r\n", b"HEAD /status/ready HTTP/1.1\r\n",
    b"FOO / HTTP/1.1\r\n", b"G\x00T / HTTP/1.1\r\n", b"GET / HTTP/1.1a\r\n", b"GET / HTTP/11\r\n",
    b"GET / HTTP/1.\xb1\r\n",
)  # fmt: skip
HEADERS = (
    b"A: b\r\n", b"A : b\r\n", b"A: b\r\n c\r\n", b"A: b\r\n\tc\r\n", b" A: b\r\n", b": b\r\n",
    b"A\r\n", b"A: b\n", b"A: b\rB: c\r\n", b"A: \x00\r\n", b"A: \x7f\r\n", b"A: \xff\r\n",
    b"\xffA: b\r\n", b"A(: b\r\n", HOST, b"Host:\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n",
    b"Connection: Upgrade\r\nUpgrade: x\r\n",
    b"Expect: 100-continue\r\n", b"Expect: x\r\n", b"X: " + b"x" * 1_100 + b"\r\n",
    b"Partition-Key: \t k \r\n", b"Proxy-Connection: x\r\n", b"Connection: \r\n", b"A: b\x0b\r\n",
)  # fmt: skip
SPICE = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"f", b"\x0b", b"\xff")
GOOD = (
    b"POST /topics/shop.orders HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    (
        b"POST /topics/shop.orders HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n5;x=y\r\n12345\r\n0\r\nT: r\r\n\r\n"
    ),
    b"GET /status/health HTTP/1.1\r\nHost: a\r\n\r\n",
    (
        b"POST /topics/shop.orders/batch HTTP/1.1\r\nHost: a\r\n"
        b"Content-Type: application/x-ndjson\r\nContent-Length: 4\r\n\r\n1\n2\n"
    ),
    b"POST /topics/shop.orders HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    (
        b"POST /topics/shop.none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
        b"Content-Length: 2\r\nPartition-Key: k\r\n\r\n{}"
    ),
    (
        b"POST /nothing HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
        b"Content-Length: 3\r\n\r\n{ }"
    ),
)


def smuggled(rng: random.Random) -> bytes:
    """Requests whose end two readers may see at different places, and another request
    after them.
    """
    fields = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(NAMES) if rng.random() < 0.3 else None
        if rng.random() < 0.5:
            fields.append((name or b"Content-Length") + b": " + rng.choice(LENGTHS) + b"\r\n")
        else:
            fields.append((name or b"Transfer-Encoding") + b": " + rng.choice(CODINGS) + b"\r\n")
    fields += [rng.choice(HEADERS) for _ in range(rng.choice((0, 0, 1, 2)))]
    if rng.random() < 0.9:
        fields.append(HOST)
    rng.shuffle(fields)
    line = LINES[0] if rng.random() < 0.8 else rng.choice(LINES)
    body = rng.choice((b"{}", b"", rng.choice(CHUNKS), rng.choice(CHUNKS)))
    return line + b"".join(fields) + b"\r\n" + body


def chunked(rng: random.Random) -> bytes:
    """A valid head, and chunks that may be invalid."""
    return LINES[0] + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + rng.choice(CHUNKS)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, removed, doubled or inserted."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                changed[at:at] = rng.choice(SPICE)
            case 1:
                del changed[at : at + rng.choice((1, 1, 2, 8))]
            case 2:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                changed[at:at] = changed[max(0, at - rng.randrange(40)) : at]
            case _:
                lines = bytes(changed).split(b"\r\n")
                line = rng.randrange(len(lines))
                lines.insert(rng.randrange(len(lines)), lines[line])
                changed = bytearray(b"\r\n".join(lines))
    return bytes(changed)


def an_input(rng: random.Random) -> bytes:
    """One connection's bytes."""
    kind = rng.random()
    if kind < 0.35:
        data = mutated(rng, b"".join(rng.choices(GOOD, k=rng.choice((1, 1, 2, 3)))))
    elif kind < 0.65:
        data = smuggled(rng)
    elif kind < 0.8:
        data = chunked(rng) if rng.random() < 0.5 else mutated(rng, chunked(rng))
    elif kind < 0.98:
        data = mutated(rng, smuggled(rng))
    elif kind < 0.99:
        data = b"".join(rng.choices(GOOD[:3], k=80))
    else:
        data = rng.choice(
            (b"GET /" + b"x" * 2_500, LINES[0] + b"A: " + b"x" * 3_000, b"\r\n" * 900)
        )
    if rng.random() < 0.7:
        data += rng.choice(GOOD)
    return data


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    """In one piece, in several, or byte by byte."""
    how = rng.random()
    if how < 0.4 or len(data) < 2:
        return [data]
    if how < 0.5 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randint(1, 5)))})
    return [data[start:end] for start, end in pairwise(places)]
