"""`hermes chaos …`: simulations by seed, and outages of real Kafkas. Exit code 1 if a promise was
broken.
"""

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Break simulated and real clusters, and check their promises.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def chaos() -> None:
    """Break a cluster on purpose and check its promises."""


@app.command()
def sim(
    seeds: Annotated[
        str, typer.Option(help="One seed, or a range first:last.", metavar="N or A:B")
    ] = "1:20",
    trace: Annotated[bool, typer.Option(help="Print every event of every run.")] = False,
    mutant: Annotated[
        str | None, typer.Option(help="Plant this bug first; the runs should then fail.")
    ] = None,
) -> None:
    """Simulate whole clusters in virtual time, one history for each seed."""
    # Imported here: the command's help should not load the broker.
    from hermes_chaos.sim.mutants.all import MUTANTS
    from hermes_chaos.sim.run import run_seed

    if mutant is not None and mutant not in MUTANTS:
        raise typer.BadParameter(
            f"there is no mutant {mutant}; choose one of {', '.join(MUTANTS)}",
            param_hint="--mutant",
        )
    faults: Counter[str] = Counter()
    failed: list[int] = []
    for seed in _parse(seeds):
        verdict = run_seed(seed, mutant=mutant, sink=print if trace else None)
        faults.update(verdict.faults)
        if verdict.holds:
            print(verdict.line(), flush=True)
        else:
            failed.append(seed)
            print(verdict.report(), flush=True)
    count = len(_parse(seeds))
    print(f"faults in all: {', '.join(f'{n} {c}' for n, c in sorted(faults.items())) or 'none'}")
    print(f"{count - len(failed)} of {count} seeds held every promise")
    if failed:
        print(f"violations with seeds {', '.join(map(str, failed))}")
        raise typer.Exit(1)


@app.command()
def mutants(
    find: Annotated[
        bool, typer.Option("--find", help="Run them; print a seed where the noted one fails.")
    ] = False,
) -> None:
    """List the bugs that `sim --mutant` can plant, with a seed that finds each."""
    # Imported here: the command's help should not load the broker.
    from hermes_chaos.sim.mutants.all import MUTANTS
    from hermes_chaos.sim.run import finding_seed

    missed = False
    for name, mutant in sorted(MUTANTS.items()):
        if not find:
            print(f"{name}  (seed {mutant.seed}): {mutant.bug}")
        elif (seed := finding_seed(name)) != mutant.seed:
            missed = missed or seed is None
            print(f"{name}: seed {seed} instead of {mutant.seed}", flush=True)
    if missed:
        raise typer.Exit(1)


_RATE = typer.Option(help="Messages per second, sent on schedule whatever the answers.")
_LOST = typer.Option(help="Seconds that a Kafka is down, each time.")


@app.command()
def dc_loss(
    rate: Annotated[float, _RATE] = 500.0,
    seconds: Annotated[float, _LOST] = 20.0,
    slow_ms: Annotated[float, typer.Option(help="Delay of its answers while it is slow.")] = 100,
) -> None:
    """Stop, kill and slow down dc1's Kafka under load, and show what publishers notice.

    Starts two Kafkas and three nodes (needs Java) and ends them. Takes some minutes. A message that
    is not answered 201 at once, or is in neither log at the end, is a violation.
    """
    # Imported here: the command's help should not load the broker.
    from hermes_actors.runtime import guest
    from hermes_chaos.live import dc_loss
    from hermes_chaos.live.site import Site

    lengths = dc_loss.Lengths(
        rate_per_s=rate, lost_s=seconds, slow_s=seconds, slow_delay_s=slow_ms / 1_000
    )
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder), {}) as site:
        account = guest.run(partial(dc_loss.lose_a_datacentre, site, lengths))
        print(account.report())
    if account.refused or account.copies.missing(account.sent):
        raise typer.Exit(1)


@app.command()
def blackout(
    rate: Annotated[float, _RATE] = 500.0,
    seconds: Annotated[float, _LOST] = 20.0,
) -> None:
    """Kill both Kafkas and a frontend under load, and show what happened to every message.

    Starts two Kafkas and three nodes (needs Java) and ends them. A message that is refused, or
    accepted and in neither log at the end, or out of order within its key, is a violation.
    """
    from hermes_actors.runtime import guest
    from hermes_chaos.live import blackout
    from hermes_chaos.live.site import Site

    lengths = blackout.Lengths(rate_per_s=rate, dark_s=seconds)
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder), blackout.VARIABLES) as site:
        account = guest.run(partial(blackout.black_out, site, lengths))
        print(account.report())
    if account.violations:
        raise typer.Exit(1)


@app.command()
def rebuild(
    rate: Annotated[float, _RATE] = 200.0,
    seconds: Annotated[float, typer.Option(help="Seconds that dc2 is away.")] = 20.0,
) -> None:
    """Lose dc2 with its Kafka's data under load, rebuild it empty, and show what was lost.

    Starts two Kafkas and three nodes (needs Java) and ends them. A message that was not waiting in
    dc2 when it was lost, and is not delivered, is a violation.
    """
    # Imported here: the command's help should not load the broker.
    from hermes_actors.runtime import guest
    from hermes_chaos.live import rebuild
    from hermes_chaos.live.site import Site

    lengths = rebuild.Lengths(rate_per_s=rate, lost_s=seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        Site(Path(folder), rebuild.VARIABLES, delivers=True) as site,
    ):
        account = guest.run(partial(rebuild.rebuild_a_datacentre, site, lengths))
        print(account.report())
    if account.violations:
        raise typer.Exit(1)


@app.command()
def scale(
    rate: Annotated[float, _RATE] = 150.0,
    seconds: Annotated[float, _LOST] = 20.0,
    consumers: Annotated[int, typer.Option(min=2, help="Consumers nodes at first.")] = 6,
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions of each topic.")] = 12,
    settle: Annotated[float, typer.Option(help="Seconds for the balancer after each change.")] = 40,
) -> None:
    """Take away a frontend while its Kafka is down, then half of the consumers; add others.

    Starts two Kafkas and up to eleven nodes (needs Java) and ends them. Shows how many partitions
    moved and how long messages waited. An accepted message that is not delivered is a violation.
    """
    from hermes_actors.runtime import guest
    from hermes_chaos.live import scaling

    lengths = scaling.Lengths(
        rate_per_s=rate,
        dark_s=seconds,
        settle_s=settle,
        consumers=consumers,
        subscriptions=subscriptions,
    )
    with tempfile.TemporaryDirectory() as folder, scaling.open_site(Path(folder), lengths) as site:
        drill = guest.run(partial(scaling.scale, site, lengths))
        print(drill.report())
    if drill.violations:
        raise typer.Exit(1)


def _parse(text: str) -> range:
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last if colon else first) + 1)
    except ValueError as error:
        raise typer.BadParameter(
            f"'{text}' is not a seed or a range of seeds; write 7 or 1:50", param_hint="--seeds"
        ) from error
    if not seeds or seeds.start < 0:
        raise typer.BadParameter(
            f"'{text}' is an empty range; write the lower seed first, from 0 on",
            param_hint="--seeds",
        )
    return seeds
