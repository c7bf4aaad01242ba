"""A tool that a person has to allow: see `approvals` in gateway.yaml."""

import json
from pathlib import Path

PAID = Path("paid.jsonl")


def pay(to: str, amount: int) -> str:
    """Pays somebody an amount in euros."""
    with PAID.open("a") as file:
        file.write(json.dumps({"to": to, "amount": amount}) + "\n")
    return f"paid {amount} euros to {to}"
