"""A tool that says what it paid."""


def pay(eur: int) -> str:
    """Pays some euros."""
    return f"paid {eur}"
