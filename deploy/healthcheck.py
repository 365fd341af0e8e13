"""Says by its exit code whether this container's node is healthy; standard library only.

    python healthcheck.py [URL…]

0 when each page answers 200; 1, with one line why, when one does not. Without URLs: the pages of
the default ports of a node with and without the role frontend, whichever is served. That of
management is not asked: it is down while Kafka is, and no restart of a node mends that. A
certificate is not checked: the pages are this container's own.
"""

import ssl
import sys
import urllib.error
import urllib.request

DEFAULTS = (
    "http://127.0.0.1:8080/status/health",
    "https://127.0.0.1:8443/status/health",
    "http://127.0.0.1:8070/status/health",
)
PAGE_WITHIN_S = 2.0
_TLS = ssl.create_default_context()
_TLS.check_hostname = False
_TLS.verify_mode = ssl.CERT_NONE
_OPENER = urllib.request.build_opener(
    # A proxy of the environment is not asked for this container's own pages.
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=_TLS),
)


def ask(url: str) -> tuple[bool, str]:
    """(somebody answered, what is wrong: "" for nothing)."""
    try:
        with _OPENER.open(url, timeout=PAGE_WITHIN_S) as answer:
            return True, "" if answer.status == 200 else f"{url}: {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return True, f"{url}: {error.code} {error.read(200).decode(errors='replace')}"
    except OSError as error:
        # A refused connection, a reset one, a time-out; URLError is one of these.
        return False, f"{url}: {error}"


def main(urls: list[str]) -> int:
    """The exit code."""
    answers = [ask(url) for url in urls or DEFAULTS]
    if urls:
        faults = [fault for _, fault in answers if fault]
    else:
        faults = [fault for answered, fault in answers if answered and fault]
        if not any(answered for answered, _ in answers):
            faults.append("no status page answers on the default ports")
    for fault in faults:
        print(fault)  # noqa: T201 -- Docker keeps it with the container's health
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
