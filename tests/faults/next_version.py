"""The version after this one: a copy of the code with a migration that only adds, and an agent whose state has a newer
form."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from storage.compiled import VERSION
from tests.running import Child

PROJECT = Path(__file__).parents[2]
NEXT = f"{int(VERSION) + 1:04}"

_MIGRATION = f'''
"""Labels, and notes on turns. Every turn gets a label, whoever writes it."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{VERSION}"
only_adds = True


def upgrade() -> None:
    op.add_column("turn", sa.Column("note", sa.Text(), nullable=True))
    op.create_index("ix_turn_note", "turn", ["note"])
    op.create_table("label", sa.Column("turn", sa.Text(), primary_key=True), sqlite_strict=True)
    insert = "INSERT INTO label (turn) VALUES (NEW.id)"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"CREATE TRIGGER label_turn AFTER INSERT ON turn BEGIN {{insert}}; END")
    else:
        op.execute(
            "CREATE FUNCTION label_turn() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {{insert}}; RETURN NULL; END $$"
        )
        op.execute("CREATE TRIGGER label_turn AFTER INSERT ON turn FOR EACH ROW EXECUTE FUNCTION label_turn()")
'''

_NEWER_STATE = """

from gateway.a2a.model import Json


class _Newer(PythonFunction):
    @property
    def ownership(self) -> Ownership:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False, state_version=2)

    def read_state(self, state: Json, version: int) -> Json:
        return {"count": state["turns"]}


factory = AdapterFactory(
    settings=PythonSettings,
    build=_Newer,
    summary="A function in Python",
    states=(StateKind(StorageOwner.GATEWAY, HandleKind.NONE, _Newer),),
    direct_replies=lambda settings: settings.direct_replies,
    tools=False,
)
"""


def next_version(folder: Path) -> Path:
    """Makes it in this folder, as its authors would: a migration is written, the statements are compiled."""
    for package in ("gateway", "adapters", "storage"):
        shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "a2a_gateway.py", folder)
    (folder / "storage" / "schema" / "migrations" / "versions" / f"v{NEXT}_labels.py").write_text(_MIGRATION)
    with (folder / "adapters" / "python" / "function.py").open("a") as file:
        file.write(_NEWER_STATE)
    subprocess.run([sys.executable, "-m", "storage.sql.compile"], cwd=folder, check=True)
    return folder


async def start(code: Path, configuration: Path) -> Child:
    """A gateway of the code in a folder, which serves."""
    command = [sys.executable, "-m", "gateway", "serve", "-c", str(configuration)]
    loop = asyncio.get_running_loop()
    _, child = await loop.subprocess_exec(Child, *command, cwd=code, stdin=None, stderr=asyncio.subprocess.STDOUT)
    try:
        await child.ready()
    except BaseException:
        await child.aclose()
        raise
    return child
