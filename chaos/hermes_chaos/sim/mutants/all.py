"""The list of all seeded bugs."""

from hermes_chaos.sim.mutants.delivering import DELIVERING
from hermes_chaos.sim.mutants.folding import FOLDING
from hermes_chaos.sim.mutants.handing_over import HANDING_OVER
from hermes_chaos.sim.mutants.owning import OWNING
from hermes_chaos.sim.mutants.publishing import PUBLISHING
from hermes_chaos.sim.mutants.pulling import PULLING
from hermes_chaos.sim.mutants.versioning import VERSIONING

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        *PUBLISHING,
        *DELIVERING,
        *PULLING,
        *VERSIONING,
        *OWNING,
        *HANDING_OVER,
        *FOLDING,
    )
}
