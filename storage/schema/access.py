"""Why this process cannot use a database file. Law: only looks: opening and closing a file would end the locks that the
process has on it."""

import os
from pathlib import Path

_LOG_FILES = ("-wal", "-shm")


def obstacle(path: Path, *, write: bool = True) -> str | None:
    """What keeps this process from a database at the path, or with `write` from making one there; None where nothing is
    seen."""
    real = Path(os.path.realpath(path))
    if os.path.isdir(real):
        return "it is a folder"
    if not os.path.exists(real):
        return _obstacle_in_folders(real, os.X_OK | (os.W_OK if write else 0))
    wanted = os.R_OK | (os.W_OK if write else 0)
    for suffix in ("", *_LOG_FILES):
        file = real.with_name(real.name + suffix)
        if os.path.exists(file) and not os.access(file, wanted):
            return _denied(file)
    # The files of the log come and go in the folder.
    return _denied(real.parent) if write and not os.access(real.parent, os.W_OK | os.X_OK) else None


def _obstacle_in_folders(file: Path, wanted: int) -> str | None:
    folder = file.parent
    while not os.path.exists(folder):
        folder = folder.parent
    if not os.path.isdir(folder):
        return f"{str(folder)!r} is no folder"
    return None if os.access(folder, wanted) else _denied(folder)


def _denied(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{str(path)!r} is on a file system that can only be read"
    found = path.stat()
    return (
        f"permission denied: {str(path)!r} belongs to the user {found.st_uid} (mode {found.st_mode & 0o777:o}), "
        f"and this process runs as the user {os.geteuid()}"
    )
