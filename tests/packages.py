"""Prints the size of every package, the packages that import it, and all functions over 40 lines: `make packages`."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
TOPS = ("gateway", "adapters", "storage")
LONG = 40


def package_of(module: str) -> str:
    """`gateway.core.turn.machine` counts as `gateway.core`; a module directly in a top package counts as itself."""
    return ".".join(module.split(".")[:2])


def sources() -> Iterator[tuple[str, Path]]:
    """(module, file) of the product."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def long_functions() -> Iterator[tuple[int, str]]:
    """(lines, `file:name`)."""
    for _, path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > LONG:
                    yield lines, f"{path.relative_to(ROOT)}:{node.name}"


def main() -> None:
    lines: dict[str, int] = defaultdict(int)
    modules: dict[str, int] = defaultdict(int)
    for module, path in sources():
        package = package_of(module)
        lines[package] += len(path.read_text(encoding="utf-8").splitlines())
        modules[package] += path.name != "__init__.py"
    graph = grimp.build_graph(*TOPS)
    importers: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if package_of(imported) != package_of(module):
                importers[package_of(imported)].add(package_of(module))
    print(f"{'package':<22}{'modules':>8}{'lines':>7}  imported by")
    for package in sorted(lines, key=lambda name: (TOPS.index(name.split(".")[0]), name)):
        named = ", ".join(sorted(name.removeprefix("gateway.") for name in importers[package]))
        print(f"{package:<22}{modules[package]:>8}{lines[package]:>7}  {named or '-'}")
    print(f"{'all':<22}{sum(modules.values()):>8}{sum(lines.values()):>7}")
    print(f"\nfunctions over {LONG} lines:")
    for size, name in sorted(long_functions(), reverse=True):
        print(f"{size:>5}  {name}")


if __name__ == "__main__":
    main()
