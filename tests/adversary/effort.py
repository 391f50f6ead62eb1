"""How many examples are generated: a handful in `make test`, many in `make test-all`.

The examples are the same in every run, so a failure is met again; the long runs have others.
"""

from hypothesis import HealthCheck, Phase, settings

_GENERATED = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # what was harmed stays so: nothing can be shrunk
    suppress_health_check=list(HealthCheck),
)
FEW = settings(_GENERATED, max_examples=4, derandomize=True)
MANY = settings(_GENERATED, max_examples=200, print_blob=True)
