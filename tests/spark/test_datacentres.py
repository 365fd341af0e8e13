import pytest

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_spark.datacentres import datacentres
from hermes_spark.snapshot import Datacentre, EmbeddedLog, KafkaLog
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.sources.kafka import client_options, properties


def test_options_name_logs_of_both_kinds(tmp_path):
    assert datacentres(None, ["dc1=kafka:a:1,b:2", f"dc2=embedded:{tmp_path}"]) == {
        "dc1": Datacentre(KafkaLog("a:1,b:2")),
        "dc2": Datacentre(EmbeddedLog(str(tmp_path))),
    }


def test_a_file_says_more_and_its_paths_are_relative_to_it(tmp_path):
    (tmp_path / "tls.properties").write_text("security.protocol=SSL\n")
    file = tmp_path / "datacentres.toml"
    file.write_text(
        '[dc1]\nkafka = "a:1"\nclient_properties = "tls.properties"\nnamespace = "ns"\n'
        '[dc2]\nembedded = "data"\n'
    )
    assert datacentres(file, ["dc3=kafka:c:3"]) == {
        "dc1": Datacentre(KafkaLog("a:1", str(tmp_path / "tls.properties")), "ns"),
        "dc2": Datacentre(EmbeddedLog(str(tmp_path / "data"))),
        "dc3": Datacentre(KafkaLog("c:3")),
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "no datacentre is named; give --dc NAME=kafka:"),
        (["dc1"], "--dc 'dc1': write NAME=kafka:HOST:PORT"),
        (["dc1=redis:x"], "write NAME=kafka:HOST:PORT"),
        (["dc1=kafka:host"], "'host' is not host:port, or several with commas"),
        (["dc1=kafka:a:1", "dc1=kafka:b:1"], "there is a dc1 already"),
    ],
)
def test_a_wrong_option_is_named_with_the_way_out(options, problem):
    with pytest.raises(UsageWrong) as failure:
        datacentres(None, options)
    assert problem in failure.value.message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[dc1]\nkafka = "a:1"\nembedded = "x"\n', "dc1: say either kafka"),
        ('[dc1]\nembedded = "x"\nnamespace = "n"\n', "belong to Kafka only"),
        (
            '[dc1]\nkafka = "a:1"\nclient_properties = "none"\n',
            "client_properties: there is no file",
        ),
        ('[dc1]\nkafak = "a:1"\n', "unknown field `kafak`"),
        ("[dc1", "datacentres.toml: "),
    ],
)
def test_a_wrong_file_is_named_with_the_way_out(tmp_path, text, problem):
    file = tmp_path / "datacentres.toml"
    file.write_text(text)
    with pytest.raises(UsageWrong) as failure:
        datacentres(file, [])
    assert problem in failure.value.message
    with pytest.raises(UsageWrong, match="No such file"):
        datacentres(tmp_path / "none.toml", [])


def test_the_clients_options_are_read_as_java_does(tmp_path):
    assert properties(
        '# comment\n\nsecurity.protocol = SASL_SSL\nsasl.jaas.config=a b="c" \\\n   d;\n'
    ) == {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'a b="c" d;'}
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.password\n")
    with pytest.raises(SourceFailed) as failure:
        client_options(KafkaLog("a:1", str(file)))
    assert failure.value.message.endswith("cannot be read: line 1 is not name=value")
