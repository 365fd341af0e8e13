"""The configuration is read strictly, and every error names the field and the way out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import Config, ConfigError, FrontendConfig, load
from hermes_actors.model.message import Envelope


def load_text(directory: Path, text: str, **environment: str) -> Config:
    path = directory / "node.toml"
    path.write_text(text)
    return load(path, environment)


def test_without_a_file_every_default_passes_the_checks() -> None:
    assert load(None, {}) == Config()


def test_an_empty_file_is_a_complete_configuration(tmp_path: Path) -> None:
    assert load_text(tmp_path, "") == Config()


def test_a_file_sets_fields_of_nested_sections(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        'dc = "dc2"\n[frontend]\nport = 80\n[frontend.tls]\nport = 443\n'
        'certificate_file = "c"\nkey_file = "k"\n[log]\nenvelope = "hermes"\n',
    )
    assert config.dc == "dc2"
    assert config.frontend.port == 80
    assert config.frontend.tls.port == 443
    assert config.log.envelope is Envelope.HERMES
    assert config.frontend.body_bytes_max == FrontendConfig().body_bytes_max


def test_variables_go_over_the_file(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        "[frontend]\nport = 80\nheaders_max = 7\n",
        HERMES_FRONTEND_PORT="81",
        HERMES_FRONTEND_TLS_PORT="82",
        HERMES_ROLES="frontend, consumers",
        HERMES_MANAGEMENT_ALLOW_REMOVAL="True",
        HERMES_LOG_ENVELOPE="hermes",
        HERMES_FRONTEND_REUSE_PORT="true",
        HERMES_NODE="n7",
        PATH="/bin",
    )
    assert (config.frontend.port, config.frontend.headers_max) == (81, 7)
    assert config.frontend.tls.port == 82
    assert config.roles == ["frontend", "consumers"]
    assert config.management.allow_removal
    assert config.log.envelope is Envelope.HERMES
    assert config.frontend.reuse_port
    assert config.node == "n7"


def test_the_variables_of_the_command_line_are_passed_over() -> None:
    assert load(None, {"HERMES_MANAGEMENT_URL": "x", "HERMES_PUBLISH_URL": "y"}) == Config()


@pytest.mark.parametrize(
    "text",
    [
        "[frontend]\nport = 0\n[management]\nport = 0",
        "[status]\nport = 8080",
        "roles = ['consumers']\n[frontend]\nport = 8090",
        "[frontend.tls]\nport = 8090",
        "[frontend]\nhost = '127.0.0.2'\nport = 8090",
    ],
)
def test_ports_that_no_two_listeners_share_are_taken(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(text)
    load(tmp_path / "node.toml", {})


@pytest.mark.parametrize(
    ("text", "field", "way_out"),
    [
        ("prot = 1", "prot", "docs/configuration.md"),
        ("[frontend]\nprot = 1", "frontend", "docs/configuration.md"),
        ("[fronted]\nport = 1", "fronted", "docs/configuration.md"),
        ("[frontend.tls]\nkeyfile = 'k'", "frontend.tls: ", "field `keyfile`; docs/"),
        (
            "[kafka.clusters.dc1]\nbootstrap_server = ['k:1']",
            "kafka.clusters[dc1]: ",
            "docs/configuration.md",
        ),
        ("[frontend]\nqqq = 1", "`qqq`", "field `qqq`; docs/"),
        ("[frontend]\nport = '80'", "frontend.port", "Expected `int`"),
        (
            "[kafka.clusters.dc1]\nbootstrap_servers = 5",
            "node.toml: kafka.clusters[dc1].bootstrap_servers: Expected",
            "docs/configuration.md",
        ),
        ("[frontend]\nreuse_port = 'yes'", "frontend.reuse_port", "docs/configuration.md"),
        ("[frontend]\nport = 65536", "frontend.port", "0…65535"),
        ("[frontend.tls]\nport = -1", "frontend.tls.port", "0…65535"),
        ("[management]\nport = -1", "management.port", "0…65535"),
        (
            "[frontend]\nhost = 'ä..b'",
            "frontend.host: 'ä..b' is not a host name",
            "address of this machine",
        ),
        ("[management]\nhost = 'a..b'", "management.host: 'a..b'", "address of this machine"),
        ("[frontend]\nport = 8090", "management.port: 8090 is also frontend.port", "another port"),
        ("[management]\nhost = '0.0.0.0'\nport = 8080", "management.port: 8080 is", "another"),
        (
            "roles = ['consumers', 'management']\n[status]\nport = 8090",
            "management.port: 8090 is also status.port",
            "another port",
        ),
        ("[frontend]\nheaders_max = 0", "frontend.headers_max", "the minimum is 1"),
        ("[consumers]\nstop_grace_ms = -1", "consumers.stop_grace_ms", "minimum is 0"),
        ("[consumers]\ncommit_interval_ms = 0", "consumers.commit_interval_ms", "minimum is 1"),
        ("[frontend]\nidle_timeout_ms = 0", "frontend.idle_timeout_ms", "minimum is 1"),
        ("[metadata]\ndigest_interval_ms = 0", "metadata.digest_interval_ms", "the minimum is 1"),
        ("[management]\nchange_timeout_ms = 0", "management.change_timeout_ms", "the minimum is 1"),
        ("[frontend]\nidle_timeout_ms = 500", "frontend.idle_timeout_ms", "raise it"),
        ("[frontend.tls]\nkey_file = 'k'", "frontend.tls.certificate_file", "set both"),
        ("[consumers]\nunsettled_span_max = 9", "consumers.inflight_max", "lower one"),
        ("roles = []", "roles", "at least one of frontend"),
        ("[schema]\nregistry = 'http'", "schema.urls", "name the registry there"),
        ("[schema]\nurls = ['https://r.test']", "schema.urls", "leave it empty for embedded"),
        (
            "[schema]\nregistry = 'http'\nurls = ['https://u:secret@r.test']",
            "schema.urls",
            "credentials are schema.user",
        ),
        (
            "[schema]\nregistry = 'http'\nurls = ['http://r.test']\ntoken_file = 't'",
            "schema.urls",
            "use https",
        ),
        (
            "[schema]\nregistry = 'http'\nurls = ['https://r.test']\nuser = 'u'",
            "schema.user",
            "set both or neither",
        ),
        ("[schema]\nsubject_suffix = '/'", "schema.subject_suffix", "use the suffix -value"),
        ("[schema]\nexpiry_ms = 9", "schema.refresh_interval_ms", "lower it"),
        ("roles = ['cook']", "roles", "docs/configuration.md"),
        ("dc = ''", "dc", "for example dc1"),
        ("dc = '../x'", "dc", "for example dc1"),
        ("node = 'a b'", "node", "for example node1"),
        ("node = '..'", "node", "for example node1"),
        (
            "[management]\nallowed_group_name_pattern = '('",
            "management.allowed_group_name_pattern",
            "the default is",
        ),
        (
            "[frontend.throughput]\ndynamic_threshold_bytes_per_s = 9",
            "frontend.throughput.dynamic_desired_bytes_per_s",
            "lower one",
        ),
        (
            "[frontend.throughput]\ndynamic_idle_bytes_per_s = -1",
            "frontend.throughput.dynamic_idle_bytes_per_s",
            "minimum is 0",
        ),
        (
            "[frontend.propagation]\nallowed = ['Trace-Id']",
            "frontend.propagation.allowed",
            "take it out of the list",
        ),
        (
            "[frontend.propagation]\nallowed = ['webhook-signature']",
            "frontend.propagation.allowed",
            "take it out of the list",
        ),
        ("[management]\ncluster_names = ['dc1']", "management.cluster_names", "dc1=primary-dc"),
        ("[management]\ncluster_names = ['a=x', 'b=x']", "cluster_names", "with different names"),
        ("[frontend]\nconnections_per_address_max = -1", "_per_address_max", "the minimum is 0"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field_and_the_way_out(
    tmp_path: Path, text: str, field: str, way_out: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(tmp_path, text)
    assert field in raised.value.message
    assert way_out in raised.value.message


@pytest.mark.parametrize(
    ("variable", "text", "way_out"),
    [
        ("HERMES_FRONTEND_PROT", "1", "docs/configuration.md"),
        ("HERMES_QQQ", "1", "HERMES_QQQ: no such field; docs/"),
        ("HERMES_NODE_PORT", "1", "docs/configuration.md"),
        ("HERMES_FRONTEND", "1", "add the field's name"),
        ("HERMES_FRONTEND_PORT", "eighty", "write digits"),
        ("HERMES_MANAGEMENT_ALLOW_REMOVAL", "yes", "write true or false"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, text: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {variable: text})
    assert raised.value.message.startswith(variable)
    assert way_out in raised.value.message


KAFKA = """
[kafka.clusters.dc1]
bootstrap_servers = ["kafka-1:9092", "kafka-2:9092"]
"""


def test_a_cluster_can_be_named_by_variables_alone() -> None:
    config = load(
        None,
        {
            "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": "a:1,b:2",
            "HERMES_KAFKA_CLUSTERS_DC1_SASL_USERNAME": "hermes",
        },
    )
    cluster = config.kafka.clusters["dc1"]
    assert (cluster.bootstrap_servers, cluster.sasl_username) == (["a:1", "b:2"], "hermes")


def test_a_variable_finds_the_cluster_of_the_file_whatever_characters_its_name_has(
    tmp_path: Path,
) -> None:
    text = 'dc = "Far-East.1"\n[kafka.clusters."Far-East.1"]\nbootstrap_servers = ["a:1"]'
    config = load_text(tmp_path, text, HERMES_KAFKA_CLUSTERS_FAR_EAST_1_BOOTSTRAP_SERVERS="b:2")
    assert {dc: c.bootstrap_servers for dc, c in config.kafka.clusters.items()} == {
        "Far-East.1": ["b:2"]
    }


@pytest.mark.parametrize(
    ("text", "field", "way_out"),
    [
        ('dc = "dc9"' + KAFKA, "kafka.clusters", "write [kafka.clusters.dc9]"),
        (KAFKA.replace("kafka-2:9092", "kafka-2"), "bootstrap_servers", "host:port"),
        ("[kafka.clusters.dc1]", "kafka.clusters.dc1.bootstrap_servers", "write for example"),
        (KAFKA + "[kafka]\nmin_insync_replicas = 2", "kafka.min_insync_replicas", "lower one"),
        (KAFKA + "[kafka]\nrequest_timeout_ms = 0", "kafka.request_timeout_ms", "minimum is 1"),
        (KAFKA + 'security_protocol = "SASL_SSL"', "sasl_username", "set both"),
        (KAFKA + 'key_file = "k.pem"', "certificate_file", "set both or neither"),
        (KAFKA + '[fallback]\nremotes = ["dc9"]', "fallback.remotes", "name clusters of"),
        ('[fallback]\nremotes = ["dc1"]', "fallback.remotes", "without this node's own"),
        ("[fallback]\nrescue_before_limit_ms = 500", "rescue_before_limit_ms", "lower one"),
        ("[fallback]\nhedge_quantile_percent = 101", "hedge_quantile_percent", "the maximum 100"),
        ("[fallback]\nhedge_budget_percent = 101", "hedge_budget_percent", "the maximum 100"),
        ("[consumers.balancer]\ncores = -1.0", "consumers.balancer.cores", "minimum is 0"),
    ],
)
def test_a_wrong_topology_is_refused_with_the_field_and_the_way_out(
    tmp_path: Path, text: str, field: str, way_out: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(tmp_path, text)
    assert field in raised.value.message
    assert way_out in raised.value.message


@pytest.mark.parametrize(
    "variable", ["HERMES_KAFKA_CLUSTERS_DC1_PORT", "HERMES_KAFKA_CLUSTERS", "HERMES_DC_X"]
)
def test_a_variable_of_a_cluster_that_names_no_field_is_refused(variable: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {variable: "1"})
    assert raised.value.message.startswith(variable)


def test_a_word_that_a_variable_may_not_hold_is_refused_with_those_it_may() -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {"HERMES_ROLES": "frontend,consumer"})
    message = raised.value.message
    assert message.startswith("HERMES_ROLES: ")
    assert "it is one of frontend, consumers, management" in message


def test_a_section_written_as_a_value_is_refused_also_under_a_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write \[frontend\] above its fields"):
        load_text(tmp_path, "frontend = 5", HERMES_FRONTEND_PORT="1")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml", {})


@pytest.mark.parametrize("content", [b"port = = 1", b"dc = '\xff'"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"node\.toml: not valid TOML"):
        load(path, {})


@given(
    port=st.integers(0, 65_535).filter(lambda port: port != Config().management.port),
    idle_ms=st.integers(1, 10_000),
    extra_ms=st.integers(0, 9_999),
)
def test_whatever_keeps_the_relations_is_accepted(port: int, idle_ms: int, extra_ms: int) -> None:
    config = load(
        None,
        {
            "HERMES_FRONTEND_PORT": str(port),
            "HERMES_FRONTEND_IDLE_TIMEOUT_MS": str(idle_ms),
            "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": str(idle_ms + extra_ms),
        },
    )
    assert config.frontend.port == port
    assert config.frontend.long_idle_timeout_ms - config.frontend.idle_timeout_ms == extra_ms
