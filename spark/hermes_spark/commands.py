"""`hermes spark …`: the data pipeline on Spark, over the logs of all datacentres."""

from hermes_actors.cli.command_line.plain import command_group

app = command_group("Prove on Spark what was stored and delivered; archive, replay, measure.")


@app.callback()
def spark() -> None:
    """Prove on Spark what was stored and delivered; archive, replay, measure."""
