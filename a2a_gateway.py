"""The command `a2a-gateway`. Law: finds the packages of the gateway beside this file, whatever other folders hold under their
names.

With PYTHONPATH, and with `python -m` in the working directory, modules of a user are found before what is installed; and
`gateway.py`, `storage.py` or `adapters/` are likely names.
"""

import gc
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import NoReturn

_PACKAGES = ("gateway", "adapters", "storage")


def main() -> NoReturn:
    serves = next((word for word in sys.argv[1:] if not word.startswith("-")), None) == "serve"
    if serves:
        # Nearly nothing of what a start makes is garbage; collections begin when the gateway serves.
        gc.disable()
    for name in _PACKAGES:
        _import_from_here(name)
    if serves:
        from gateway.foundation.hangups import keep_hangups

        keep_hangups()
    from gateway.cli.main import run
    from gateway.foundation.ending import end_process

    end_process(run(sys.argv[1:]))


def _import_from_here(name: str) -> None:
    spec = PathFinder.find_spec(name, [str(Path(__file__).resolve().parent)])
    if name not in sys.modules and spec is not None and spec.loader is not None:
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


if __name__ == "__main__":
    main()
