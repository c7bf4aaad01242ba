"""The command `a2a-gateway` as `python -m gateway`."""

from a2a_gateway import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
