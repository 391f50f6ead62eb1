"""How many examples `make test-all` generates for each login; `make test` has the found holes."""

from hypothesis import HealthCheck, Phase, settings

MANY = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # what was harmed stays so: nothing can be shrunk
    suppress_health_check=list(HealthCheck),
    max_examples=200,
    print_blob=True,
)
