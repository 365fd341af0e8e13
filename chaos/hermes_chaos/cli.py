"""`hermes chaos …`: run simulations by seed; exit code 1 when a promise was broken."""

from collections import Counter
from typing import Annotated

import typer

app = typer.Typer(
    help="Break a simulated cluster, seed by seed, and check what was promised.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def chaos() -> None:
    """Break a cluster on purpose and check what was promised."""


@app.command()
def sim(
    seeds: Annotated[
        str, typer.Option(help="One seed, or first:last, both included.", metavar="N or A:B")
    ] = "1:20",
    trace: Annotated[bool, typer.Option(help="Print every event of every run.")] = False,
    mutant: Annotated[
        str | None, typer.Option(help="Plant this bug first; the runs should then fail.")
    ] = None,
) -> None:
    """Simulate whole clusters in virtual time, one history for each seed."""
    # Imported here: the command's help should not load the broker.
    from hermes_chaos.sim.mutants import MUTANTS
    from hermes_chaos.sim.run import run_seed

    if mutant is not None and mutant not in MUTANTS:
        raise typer.BadParameter(
            f"there is no mutant {mutant}; known are {', '.join(MUTANTS)}", param_hint="--mutant"
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
            f"'{text}' holds no seed; write the lower one first, from 0 on", param_hint="--seeds"
        )
    return seeds
