"""All seeded bugs, which the checkers must catch."""

from hermes_chaos.sim.mutants.delivering import DELIVERING
from hermes_chaos.sim.mutants.owning import OWNING
from hermes_chaos.sim.mutants.publishing import PUBLISHING

MUTANTS = {mutant.name: mutant for mutant in (*PUBLISHING, *DELIVERING, *OWNING)}
