"""The page for those who come from Hermes: every setting of its frontend, and nothing invented."""

import re
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_actors.config import Config, load

PAGE = Path(__file__).parent.parent / "docs" / "from-hermes.md"
LONG_MAX = 2**63 - 1

_PRODUCER = (
    "maxBlock metadataMaxAge compressionCodec retries retryBackoff retryBackoffMax requestTimeout "
    "deliveryTimeout batchSize linger bufferMemory tcpSendBuffer maxRequestSize "
    "maxInflightRequestsPerConnection idempotenceEnabled partitionerClass poolSize "
    "metricsSampleWindow reportNodeMetricsEnabled"
)
# Hermes 2.21.0, by what stands before the dot.
FRONTEND = {
    "server": "host port readTimeout requestParseTimeout maxHeaders maxParameters maxCookies "
    "backlogSize bufferSize ioThreadsCount workerThreadCount keepAlive alwaysKeepAlive "
    "requestDumperEnabled gracefulShutdownEnabled gracefulShutdownInitialWait http2Enabled",
    "ssl": "enabled port clientAuthMode protocol keystoreSource keystoreLocation keystorePassword "
    "keystoreFormat truststoreSource truststoreLocation truststorePassword truststoreFormat",
    "handlers": "idleTimeout longIdleTimeout maxPublishRequestDuration forceTopicMaxMessageSize",
    "handlers.authentication": "enabled mode",
    "handlers.keepAliveHeader": "enabled timeout",
    "throughput": "type fixedMax dynamicMax dynamicThreshold dynamicDesired dynamicIdle "
    "dynamicCheckInterval",
    "http.headers": "propagationEnabled allowedSet additionalAllowedSetToLog",
    "http.headers.propagationAsKafkaHeaders": "enabled prefix",
    "kafka": "namespace namespaceSeparator",
    "kafka.clusters[]": "datacenter remoteDatacenters brokerList adminRequestTimeout",
    "kafka.clusters[].authentication": "enabled mechanism protocol username password loginModule "
    "jaasConfig",
    "kafka.producer": _PRODUCER,
    "kafka.fail-fast-producer": "speculativeSendDelay",
    "kafka.fail-fast-producer.fallbackScheduler": "threadPoolSize threadPoolMonitoringEnabled",
    "kafka.chaos.chaosScheduler": "threadPoolSize threadPoolMonitoringEnabled",
    "kafka.header.name": "messageId schemaVersion schemaId",
    "schema": "idHeaderEnabled versionTruncationEnabled",
    "schema.cache": "enabled refreshAfterWrite expireAfterWrite compiledExpireAfterAccess "
    "compiledMaximumSize reloadThreadPoolSize",
    "schema.repository": "serverUrl httpReadTimeout httpConnectTimeout onlineCheckPermitsPerSecond "
    "onlineCheckAcquireWait subjectSuffixEnabled subjectNamespaceEnabled",
    "startup.topic.loading.metadata": "enabled retryInterval retryCount threadPoolSize",
    "startup.topic.loading.schema": "enabled retryCount threadPoolSize",
    "startup.topic.loading.metadataRefreshJob": "enabled interval",
    "topic.defaults": "fallbackToRemoteDatacenterEnabled",
    "readiness.check": "enabled kafkaCheckEnabled interval",
    "message.preview": "enabled maxSizeKb size logPersistPeriod",
    "broker-latency-reporter": "enabled slowResponseLoggingThreshold threadPoolSize "
    "threadPoolQueueCapacity",
    "zookeeper.clusters[]": "connectionString datacenter root baseSleepTime maxSleepTime "
    "maxRetries connectionTimeout sessionTimeout processingThreadPoolSize",
    "zookeeper.clusters[].authorization": "enabled scheme user password",
    "datacenter.name": "source env",
    "metrics.micrometer": "percentiles reportPeriod zookeeperReporterEnabled",
    "metrics.metric-registry": "counterExpireAfterAccess",
    "prometheus": "step descriptions",
    "content.root": "message metadata",
    # Until 2.19.
    "messages.local.storage": "enabled directory maxAge bufferedSizeBytes temporary",
}
OPTIONS = [
    f"frontend.{prefix}.{name}" for prefix, names in FRONTEND.items() for name in names.split()
]


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def rows() -> list[list[str]]:
    """The rows of the settings: Hermes' options, their default, ours, a remark."""
    lines = [line.strip("|\n").split("|") for line in PAGE.read_text().splitlines()]
    return [
        [cell.strip() for cell in cells]
        for cells in lines
        if len(cells) == 4 and cells[0].strip().startswith("`frontend.")
    ]


def prose() -> str:
    """The page without Hermes' own names and without blocks of code."""
    text = re.sub(r"^```.*?^```", "", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^\| `frontend\.[^|]*\|", "", text, flags=re.MULTILINE)


def defaults(struct: type[msgspec.Struct] = Config, section: str = "") -> dict[str, Any]:
    """Every setting of ours with its default; a section's name stands for itself."""
    found: dict[str, Any] = {}
    for each in msgspec.structs.fields(struct):
        kind = each.type
        if typing.get_origin(kind) is dict:
            kind = typing.get_args(kind)[1]
            found |= defaults(kind, f"{section}{each.name}.<dc>.")
            found[f"{section}{each.name}.<dc>"] = {}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found |= defaults(kind, f"{section}{each.name}.")
        elif each.default is not msgspec.NODEFAULT:
            found[section + each.name] = each.default
        else:
            assert callable(each.default_factory)
            found[section + each.name] = each.default_factory()
    return found


OURS = defaults()


def ours_in(text: str) -> list[tuple[str, str]]:
    """Settings of ours in code spans, as (name, value); value "" where none is given."""
    sections = "|".join(sorted({name.partition(".")[0] for name in OURS if "." in name}))
    pattern = re.compile(rf"((?:{sections})(?:\.[a-z0-9_<>]+)+|dc)(?: = (.+))?")
    matches = [pattern.fullmatch(span) for span in spans(text)]
    return [(found[1], found[2] or "") for found in matches if found]


def in_our_unit(default: str, name: str) -> Any:
    """What Hermes' default is as a value of this setting."""
    if default == "largest long":
        return LONG_MAX
    found = re.fullmatch(r"([\d.]+) (ms|s|min|h|MiB)", default)
    if found:
        unit = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "MiB": 2**20}[found[2]]
        return int(found[1]) * unit // (1_000 if name.endswith("_s") else 1)
    if default in ("{}", "[]"):
        return []
    try:
        return msgspec.json.decode(default)
    except msgspec.DecodeError:
        return default


def test_the_list_of_options_has_no_double() -> None:
    assert len(OPTIONS) == len(set(OPTIONS)) > 150


def test_each_option_of_hermes_stands_on_the_page_once() -> None:
    shown = Counter(span for row in rows() for span in spans(row[0]))
    assert {name: shown[name] for name in OPTIONS if shown[name] != 1} == {}
    assert sorted(set(shown) - set(OPTIONS)) == []


def test_each_row_gives_a_setting_of_ours_or_a_reason_why_there_is_none() -> None:
    for option, _default, ours, remark in rows():
        if ours == "–":
            assert len(remark) > 15, option
            assert remark.endswith("."), option
        else:
            assert ours_in(ours), option


def test_each_setting_of_ours_on_the_page_exists() -> None:
    named = ours_in(prose())
    assert len(named) > 80
    assert [name for name, _value in named if name not in OURS] == []


def test_each_default_of_ours_on_the_page_is_the_default() -> None:
    for name, shown in ours_in(prose()):
        if shown:
            assert msgspec.json.decode(shown) == OURS[name], name


def test_where_no_default_of_ours_is_given_it_is_that_of_hermes() -> None:
    compared = 0
    for option, default, ours, _remark in rows():
        for name, shown in ours_in(ours):
            if not shown:
                assert OURS[name] == in_our_unit(default, name), f"{option} and {name}"
                compared += 1
    assert compared > 30


@pytest.mark.parametrize("variable", re.findall(r"`(HERMES_[A-Z_]+)`", PAGE.read_text()))
def test_each_variable_on_the_page_is_one(variable: str) -> None:
    assert variable in {f"HERMES_{name.upper().replace('.', '_')}" for name in OURS}


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as GitHub makes it of them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_each_link_of_the_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE.read_text())
    assert len(links) > 10
    for file, anchor in links:
        page = PAGE.parent / file if file else PAGE
        assert page.is_file(), file
        assert not anchor or anchor in anchors(page), f"{file}#{anchor}"


def test_the_configuration_on_the_page_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path / "node.toml"
    file.write_text(block)
    assert load(file, {}).log.envelope == "hermes"
