"""A task of offline retransmission: a topic's archived messages of some time, for another topic."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.model.moments import moment_ms
from hermes_spark.lives import topic_of
from hermes_spark.replay.selection import records_of

TASKS = "/offline-retransmission/tasks"


class Task(Struct, frozen=True, rename="camel"):
    """A task as management shows it."""

    task_id: str
    type: str
    target_topic: str
    source_topic: str = ""
    start_timestamp: str = ""
    end_timestamp: str = ""


def task_of(client: ManagementClient, task_id: str) -> Task:
    """The task with this id. Raises UsageWrong if there is none, or it has no source topic."""
    tasks = msgspec.json.decode(client.get(TASKS), type=list[Task])
    found = next((each for each in tasks if each.task_id == task_id), None)
    if found is None:
        raise UsageWrong(f"--task {task_id}: there is no such task; GET {TASKS} lists them")
    if found.type != "TOPIC":
        raise UsageWrong(f"--task {task_id}: it reads a view, which only your own job can do")
    return found


def delete_task(client: ManagementClient, task: Task) -> None:
    """Delete a task that is done."""
    client.delete(f"{TASKS}/{quoted(task.task_id)}")


def wanted_by(task: Task, records: Any) -> Any:
    """The messages of the task, once each: topic and message_id. The end is exclusive."""
    from pyspark.sql import functions as f

    start_ms, end_ms = moment_ms(task.start_timestamp, 0), moment_ms(task.end_timestamp, 0)
    at = f.col("timestamp_ms")
    rows = records.where((at >= start_ms) & (at < end_ms)).withColumn("topic", topic_of("topic"))
    return rows.where(f.col("topic") == task.source_topic).select("topic", "message_id").distinct()


def records_for(task: Task, wanted: Any, records: Any) -> Any:
    """The records of these messages, in order, as records of the target topic."""
    from pyspark.sql import functions as f

    return records_of(wanted, records).withColumn("topic", f.lit(task.target_topic))
