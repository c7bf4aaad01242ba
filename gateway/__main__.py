"""The command `a2a-gateway`, also as `python -m gateway`."""

import sys

from gateway.cli.main import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
