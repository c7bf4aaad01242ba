"""Why this process cannot use a database file. Law: only looks: opening and closing a file would end the locks that the
process has on it."""

import os
from pathlib import Path

_LOG_FILES = ("-wal", "-shm")


def obstacle(path: Path, *, write: bool = True) -> str | None:
    """What keeps this process from a database at the path, or with `write` from making one there; None where nothing is
    seen."""
    real = Path(os.path.realpath(path))
    if not _there(real):
        return _obstacle_in_folders(real, os.X_OK | (os.W_OK if write else 0))
    if real.is_dir():
        return "it is a folder"
    wanted = os.R_OK | (os.W_OK if write else 0)
    for suffix in ("", *_LOG_FILES):
        file = real.with_name(real.name + suffix)
        if _there(file) and not os.access(file, wanted):
            return _denied(file)
    has_log = all(_there(real.with_name(real.name + suffix)) for suffix in _LOG_FILES)
    if not write or has_log or os.access(real.parent, os.W_OK | os.X_OK):
        return None
    return _denied(real.parent)  # where SQLite would make the files of the log


def absence(path: Path) -> str | None:
    """Says that there is no database at the path; None where there is one, or where this process may not look."""
    if obstacle(path, write=False) is not None or path.is_file():
        return None
    return f"there is no database {str(path)!r}"


def _obstacle_in_folders(file: Path, wanted: int) -> str | None:
    folder = file.parent
    while not _there(folder):
        folder = folder.parent
    if not folder.is_dir():
        return f"{str(folder)!r} is no folder"
    return None if os.access(folder, wanted) else _denied(folder)


def _there(path: Path) -> bool:
    """False also where this process may not look."""
    return os.access(path, os.F_OK)


def _denied(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{str(path)!r} is on a file system that can only be read"
    found = path.stat()
    return (
        f"permission denied: {str(path)!r} belongs to the user {found.st_uid} (mode {found.st_mode & 0o777:o}), "
        f"and this process runs as the user {os.geteuid()}"
    )
