"""A contract for import-linter: the children of a package are strangers to each other, whichever there are.

`shared` names the children that all others may import; they import none of those. A new child needs no line in the contract.
"""

from itertools import permutations
from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class IndependentChildren(Contract):
    container = fields.StringField()
    shared = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        shared = {f"{self.container}.{name}" for name in cast("set[str]", self.shared)}
        found = [
            (importer, imported, chain)
            for importer, imported in permutations(sorted(graph.find_children(str(self.container))), 2)
            if imported not in shared
            and (chain := graph.find_shortest_chain(importer, imported, as_packages=True)) is not None
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        found: list[Any] = check.metadata["found"]
        for importer, imported, chain in found:
            output.print_error(f"{importer} is not allowed to import {imported}: {' -> '.join(chain)}", bold=False)
