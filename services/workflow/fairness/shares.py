"""Places that tenants share: nobody takes more than are left to the others.

A tenant gets another one when it has no more then than were free. One alone comes to have half of
them, two a third each, and so on; so there is room for whoever comes next, who need not be known
before. What a tenant may have at most is for the caller to see to.
"""


class Shares:
    """Counts places."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._held: dict[str, int] = {}
        self._taken = 0

    @property
    def free(self) -> int:
        """Places that nobody has; below zero when some were taken that did not fit."""
        return self._places - self._taken

    def fits(self, tenant: str, number: int = 1) -> bool:
        """Whether a tenant may take so many more."""
        return self.of(tenant) + number <= self.free

    def take(self, tenant: str, number: int = 1) -> None:
        """Take places, whether they fit or not."""
        self._held[tenant] = self.of(tenant) + number
        self._taken += number

    def give_back(self, tenant: str, number: int = 1) -> None:
        """Give places back."""
        self._taken -= number
        left = self._held[tenant] - number
        if left:
            self._held[tenant] = left
        else:
            del self._held[tenant]

    def of(self, tenant: str) -> int:
        """How many a tenant has."""
        return self._held.get(tenant, 0)

    def held(self) -> dict[str, int]:
        """How many each tenant has that has any."""
        return dict(self._held)
