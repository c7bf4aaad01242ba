"""The command `a2a-gateway`, also as `python -m gateway`."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from gateway.cli.main import run


def main() -> None:
    _find_plug_ins_beside_this_package()
    sys.exit(run(sys.argv[1:]))


def _find_plug_ins_beside_this_package() -> None:
    """With `python -m`, and with PYTHONPATH, modules of the same names in other folders would be found first."""
    for name in ("adapters", "storage"):
        spec = PathFinder.find_spec(name, [str(Path(__file__).resolve().parents[1])])
        if spec is not None and spec.loader is not None:
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])


if __name__ == "__main__":
    main()
