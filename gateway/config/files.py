"""Text files that a configuration names. Law: imports no models, so that commands which need few settings start quickly."""

from pathlib import Path


def read_text(path: Path) -> str:
    """Raises: ValueError with the reason in plain words."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {path} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a usable path"
        raise ValueError(f"the file {path} cannot be read: {reason.lower()}") from error
