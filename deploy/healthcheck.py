"""Checks whether this container's node is healthy. Uses only the standard library.

    python healthcheck.py [URL…]

Exit code 0 if each page answers 200; else 1, with one line that says why. Without URLs it checks
the status pages on the default ports of nodes with and without the frontend role, whichever is
served. It does not check management, which is down while Kafka is: restarting a node would not
help. It does not verify certificates, because the pages are this container's own.
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
    # Ignore a proxy of the environment.
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=_TLS),
)


def ask(url: str) -> tuple[bool, str]:
    """Return (a server answered, the problem; empty string if there is none)."""
    try:
        with _OPENER.open(url, timeout=PAGE_WITHIN_S) as answer:
            return True, "" if answer.status == 200 else f"{url}: {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return True, f"{url}: {error.code} {error.read(200).decode(errors='replace')}"
    except OSError as error:
        # A refused or reset connection, or a timeout; URLError is an OSError.
        return False, f"{url}: {error}"


def main(urls: list[str]) -> int:
    """Return the exit code."""
    answers = [ask(url) for url in urls or DEFAULTS]
    if urls:
        faults = [fault for _, fault in answers if fault]
    else:
        faults = [fault for answered, fault in answers if answered and fault]
        if not any(answered for answered, _ in answers):
            faults.append("no status page answers on the default ports")
    for fault in faults:
        print(fault)  # noqa: T201 -- Docker stores it with the container's health
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
