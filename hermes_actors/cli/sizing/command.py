"""`hermes sizing`: prints what a load needs, and the Helm values for it."""

from typing import Any

import msgspec
import typer
import yaml

from hermes_actors.cli.command_line import options
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.output.render import say, show_table, write_json
from hermes_actors.cli.sizing.calculation import sizing
from hermes_actors.cli.sizing.measured import FACTOR, MEASURED_ON
from hermes_actors.config import ConsumersConfig

_COLUMNS = {"": "role", "Nodes": "nodes", "each: CPU": "cpu", "memory": "memory", "disk": "disk"}
_SAID = """
published/s, delivered/s: {publishedPerS:,.0f}, {deliveredPerS:,.0f}; {inFlight:,} in flight
a frontend's spool:       {spoolEntries:,} messages
a broker:                 {brokerInMBPerS} MB/s in, {brokerOutMBPerS} out
all brokers:              {replicas:,} replicas of partitions
a topic:                  {topicPartitions} partitions; the busiest {busiestPartitions}
its subscriptions:        {busiestNodes} nodes each, with {busiestInFlight} in flight on each
measured on:              {measuredOn}; times {factor}
"""
_BUSIEST = """
For the busiest topic, in Kafka of each datacentre, then once:
kafka-topics.sh --bootstrap-server BROKER --alter --topic TOPIC --partitions {busiestPartitions}
hermes balancer constrain TOPIC --nodes {busiestNodes}
"""


def _output(
    output: options.OutputOption = options.Output.TABLE, json: options.JsonOption = False
) -> None: ...


class SizingCommand(PlainCommand):
    """A command whose function is the calculation; it prints the result."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.params += options.added_options(_output, "Output")

    def invoke(self, ctx: Any) -> None:
        """Run the command."""
        found = super().invoke(ctx) | {"measuredOn": MEASURED_ON, "factor": FACTOR}
        values = helm_values(found, ctx.params["replication"])
        if options.wants_json():
            write_json(msgspec.json.encode(found | {"values": values}))
            return
        kafka = {"role": "kafka", "nodes": found["brokers"], "disk": found["brokerDisk"]}
        show_table(_COLUMNS, [*found["pods"], kafka], "")
        said = _SAID + _BUSIEST * (found["busiestPartitions"] > found["topicPartitions"])
        say(said.format(**found) + "\nValues of the Helm chart:\n")
        say(yaml.safe_dump(values, sort_keys=False).rstrip())


def helm_values(found: dict[str, Any], replication: int) -> dict[str, Any]:
    """Return the values for the chart in deploy/helm/hermes-actors."""
    in_flight = max(ConsumersConfig().inflight_max, 2 * found["busiestInFlight"])
    in_sync = max(1, replication - 1)
    config = {
        "spool": {"disk_bytes_max": found["spoolBytes"], "entries_max": found["spoolEntries"]},
        "consumers": {"inflight_max": in_flight, "connections_per_origin_max": in_flight},
        "management": {"topic_partitions": found["topicPartitions"]},
        "kafka": {"replication_factor": replication, "min_insync_replicas": in_sync},
    }
    pods = {}
    for pod in found["pods"]:
        requests = {"cpu": pod["cpu"], "memory": pod["memory"]}
        limits = {"memory": f"{2 * int(pod['memory'][:-2])}Mi"}
        resources = {"requests": requests, "limits": limits}
        pods[pod["role"]] = {"replicas": pod["nodes"], "resources": resources}
        if "nodesMin" in pod:
            scaled = {"minReplicas": pod["nodesMin"], "maxReplicas": 2 * pod["nodes"]}
            pods[pod["role"]]["autoscaling"] = scaled
    return {"config": config, "spool": {"size": found["pods"][0]["disk"]}, **pods}


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command(
    cls=SizingCommand,
    epilog=options.examples(
        "hermes sizing --rate 200 --topics 40 --subscriptions 60",
        "hermes sizing --rate 20000 --topics 2000 --subscriptions 4000 --fanout 3 --datacentres 2",
    ),
)(sizing)
