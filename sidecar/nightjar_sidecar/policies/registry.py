"""Policies by the name they have in a NightjarService."""

from collections.abc import Callable, Mapping
from random import Random

from nightjar_api.service import PlannerSpec, PolicyName
from nightjar_sidecar.policies.ada_bingreedy import AdaBinGreedy
from nightjar_sidecar.policies.banditspec import BanditSpecExp3, BanditSpecUcb
from nightjar_sidecar.policies.fixed import Fixed
from nightjar_sidecar.policies.linear import LinearTs, LinUcb
from nightjar_sidecar.policies.nightjar import Nightjar
from nightjar_sidecar.policies.off import OFF
from nightjar_sidecar.policies.protocol import Policy
from nightjar_sidecar.policies.static_table import StaticTable
from nightjar_sidecar.space import Space

Factory = Callable[[Space, PlannerSpec, Random], Policy]

FACTORY_BY_NAME: Mapping[PolicyName, Factory] = {
    "nightjar": lambda space, _spec, _rng: Nightjar(space),
    "ada-bingreedy": lambda space, _spec, rng: AdaBinGreedy(space, rng),
    "fixed": lambda _space, spec, _rng: Fixed(spec.fixed_gamma),
    "off": lambda _space, _spec, _rng: OFF,
    "static-table": lambda space, spec, _rng: StaticTable(space, spec.table or ()),
    "banditspec-ucb": lambda space, _spec, _rng: BanditSpecUcb(space),
    "banditspec-exp3": lambda space, _spec, rng: BanditSpecExp3(space, rng),
    "linucb": lambda space, _spec, _rng: LinUcb(space),
    "linear-ts": lambda space, _spec, rng: LinearTs(space, rng),
}
