import pytest

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.nodes.processes import check_shareable, variables_of
from hermes_actors.config import load

KAFKA = {"HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": "127.0.0.1:9092"}


def test_processes_share_the_publishing_port_and_nothing_else():
    variables = KAFKA | {
        "HERMES_NODE": "front",
        "HERMES_METADATA_REPLICATOR": "front",
        "HERMES_GRPC_ENABLED": "true",
    }
    config = load(None, variables)
    check_shareable(config, 3)
    found = [load(None, variables | variables_of(config, number)) for number in (1, 3)]
    assert [each.node for each in found] == ["front-1", "front-3"]
    assert {each.metadata.replicator for each in found} == {"front-1"}
    assert {(each.frontend.port, each.frontend.reuse_port) for each in found} == {(8080, True)}
    for own, other in (
        (found[0].management.port, found[1].management.port),
        (found[0].status.port, found[1].status.port),
        (found[0].grpc.port, found[1].grpc.port),
    ):
        assert other == own + 2
    assert found[0].management.port == config.management.port
    # A free port stays one.
    assert found[1].frontend.memory.port == 0


@pytest.mark.parametrize(
    ("variables", "count", "field"),
    [
        ({}, 2, "kafka.clusters"),
        (KAFKA | {"HERMES_FRONTEND_PORT": "0"}, 2, "frontend.port"),
        # 8070 + 10
        (KAFKA, 11, "frontend.port and status.port would both be 8080"),
    ],
)
def test_what_only_one_process_can_have_is_refused(variables, count, field):
    with pytest.raises(UsageWrong, match=field):
        check_shareable(load(None, variables), count)
