"""How a broker's Java virtual machine starts quickly."""

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Less compiling and fewer threads: for tests, which start many brokers for little work."""
FULL_SPEED = ("-XX:+UseG1GC",)
"""Java's own choices for a server: for measurements, and for days of work."""


def options(_java: str, _classpath: str) -> tuple[str, ...]:
    """The options that let Java load Kafka's classes faster; none if that is not prepared."""
    return ()
