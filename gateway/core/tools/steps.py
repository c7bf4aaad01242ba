"""The work that a check of a model's arguments may cost. Law: a check ends when its steps are used up, whatever the schema."""

STEPS = 50_000
"""The steps of all arguments of one service call. A step is the work of one keyword or one subschema on one
value: up to ten microseconds."""


class StepsUsedUp(Exception):
    """The check would take too long."""


class Steps:
    """Steps that are left. Several checks may share them."""

    __slots__ = ("left",)

    def __init__(self, left: int = STEPS) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Raises: StepsUsedUp."""
        self.left -= steps
        if self.left < 0:
            raise StepsUsedUp
