"""The repository itself: what is in it, what is not, and that every module has its tests."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gateway", "adapters", "storage")

# Modules without a test file at the mirrored place, and where they are tested instead.
TESTED_ELSEWHERE: dict[str, str] = {
    "adapters/_chat_messages.py": "tests/adapters/test_openai_chat.py",
    "adapters/_chat_reading.py": "tests/adapters/test_openai_chat.py",
    "adapters/_content.py": "tests/adapters/test_responses_input.py",
    "adapters/_failures.py": "tests/adapters/test_http.py",
    "adapters/_mcp_session.py": "tests/adapters/test_mcp_connection.py",
    "adapters/_tool_headers.py": "tests/adapters/test_tool_http.py",
    "adapters/_responses_items.py": "tests/adapters/test_responses_reading.py",
    "adapters/_settings.py": "tests/adapters/test_openai_responses.py",
    "adapters/_sse.py": "tests/adapters/test_http.py",
    "gateway/abilities.py": "tests/gateway/testing/test_adapter_suite.py",
    "gateway/answering.py": "tests/scenarios/test_approvals.py",
    "gateway/app.py": "tests/faults/test_drain.py",
    "gateway/attaching.py": "tests/gateway/test_offering.py",
    "gateway/bindings/common.py": "tests/interaction/test_service_parameters.py",
    "gateway/bindings/jsonrpc.py": "tests/interaction/test_bad_input.py",
    "gateway/bindings/routes.py": "tests/interaction/test_addresses.py",
    "gateway/calls.py": "tests/interaction/scripted.py",
    "gateway/catching_up.py": "tests/scenarios/test_unheard_calls.py",
    "gateway/call_points.py": "tests/gateway/test_runner.py",
    "gateway/course.py": "tests/gateway/test_serving.py",
    "gateway/commits/accepting.py": "tests/storage/test_units.py",
    "gateway/commits/calls.py": "tests/storage/test_units.py",
    "gateway/commits/failures.py": "tests/storage/test_ledger.py",
    "gateway/commits/forgetting.py": "tests/storage/test_ending.py",
    "gateway/commits/importing.py": "tests/storage/test_portable.py",
    "gateway/commits/leases.py": "tests/storage/test_units.py",
    "gateway/commits/points.py": "tests/storage/test_units.py",
    "gateway/commits/tasks.py": "tests/storage/test_units.py",
    "gateway/commits/threads.py": "tests/storage/test_epochs.py",
    "gateway/commits/tools.py": "tests/storage/test_units.py",
    "gateway/commits/waiting.py": "tests/storage/test_waiting.py",
    "gateway/cli/conversation.py": "tests/gateway/cli/test_chatting.py",
    "gateway/cli/key_commands.py": "tests/gateway/cli/test_keys.py",
    "gateway/config_agents.py": "tests/gateway/test_config.py",
    "gateway/config_cards.py": "tests/gateway/test_config_file.py",
    "gateway/config_problem.py": "tests/gateway/test_config_file.py",
    "gateway/config_settings.py": "tests/gateway/test_config.py",
    "gateway/config_text.py": "tests/gateway/test_config_file.py",
    "gateway/config_tools.py": "tests/gateway/test_config.py",
    "gateway/config_words.py": "tests/gateway/test_config_file.py",
    "gateway/elsewhere.py": "tests/scenarios/test_leases_and_processes.py",
    "gateway/ledger_port.py": "tests/storage/test_ledger.py",
    "gateway/listening.py": "tests/scenarios/test_background.py",
    "gateway/expiring.py": "tests/scenarios/test_approvals.py",
    "gateway/live.py": "tests/gateway/test_runner.py",
    "gateway/portable.py": "tests/storage/test_portable.py",
    "gateway/ports.py": "tests/gateway/testing/test_adapter_suite.py",
    "gateway/push_records.py": "tests/storage/test_pushing.py",
    "gateway/pushing.py": "tests/gateway/bindings/test_admin_push.py",
    "gateway/server.py": "tests/faults/test_drain.py",
    "gateway/suspended.py": "tests/scenarios/test_approvals.py",
    "gateway/taking_over.py": "tests/scenarios/test_background.py",
    "gateway/testing/adapter_calls.py": "tests/gateway/testing/test_adapter_suite.py",
    "gateway/testing/adapter_tools.py": "tests/gateway/testing/test_adapter_suite.py",
    "gateway/testing/responses_background.py": "tests/adapters/test_responses_background.py",
    "gateway/testing/chat_reply.py": "tests/gateway/testing/test_chat_server.py",
    "gateway/testing/emulator.py": "tests/gateway/testing/test_responses_server.py",
    "gateway/testing/responses_chain.py": "tests/gateway/testing/test_responses_server.py",
    "gateway/testing/responses_dialects.py": "tests/gateway/testing/test_responses_server.py",
    "gateway/testing/scripts.py": "tests/gateway/testing/test_responses_server.py",
    "gateway/telling.py": "tests/gateway/test_turn.py",
    "gateway/told_calls.py": "tests/gateway/test_turn.py",
    "gateway/tool_port.py": "tests/gateway/test_invoking.py",
    "gateway/turn_commands.py": "tests/gateway/test_turn.py",
    "gateway/tool_rounds.py": "tests/scenarios/test_tool_loop.py",
    "gateway/toolset.py": "tests/gateway/test_offering.py",
    "gateway/wire/proto_json.py": "tests/gateway/wire/test_v1_0.py",
    "storage/accepting.py": "tests/storage/test_statements.py",
    "storage/calling.py": "tests/storage/test_statements.py",
    "storage/compiled.py": "tests/storage/test_compile.py",
    "storage/conditions.py": "tests/storage/test_queries.py",
    "storage/due.py": "tests/storage/test_ending.py",
    "storage/ending_units.py": "tests/storage/test_ending.py",
    "storage/exporting.py": "tests/storage/test_portable.py",
    "storage/history.py": "tests/storage/test_queries.py",
    "storage/importing.py": "tests/storage/test_portable.py",
    "storage/key_units.py": "tests/storage/test_keys.py",
    "storage/migrate.py": "tests/storage/test_schema.py",
    "storage/push_reads.py": "tests/storage/test_pushing.py",
    "storage/push_units.py": "tests/storage/test_pushing.py",
    "storage/records.py": "tests/storage/test_reads.py",
    "storage/running.py": "tests/storage/test_queries.py",
    "storage/statement.py": "tests/storage/test_statements.py",
    "storage/thread_units.py": "tests/storage/test_units.py",
    "storage/turns.py": "tests/storage/test_statements.py",
    "storage/waiting_units.py": "tests/storage/test_waiting.py",
}
"""Modules that are parts of a whole: where that whole is tested."""

REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|docker\.io|ghcr\.io|quay\.io"
    r"|proxy\.golang\.org|conda\.anaconda\.org|index-url|find-links",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.*$}~)-])/(?:root|work|Users|home)/[\w.]|(?<![\w$}])[A-Z]:\\Users\\")
# uv writes the lock, and this file has to name what it looks for.
MAY_NAME_HOSTS = {"uv.lock", "tests/test_project.py"}
LOCK_HOSTS = {"pypi.org", "files.pythonhosted.org"}


def repository_files() -> list[Path]:
    """Every text file that is in git, or would be with the next `git add`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known here")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def modules() -> Iterator[str]:
    """`gateway/wire/v1_0.py` and its like, but for those without logic of their own to test."""
    for path in chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES):
        if path.name not in {"__init__.py", "__main__.py"} and "migrations" not in path.parts:
            yield path.relative_to(ROOT).as_posix()


def mirror(module: str) -> Path:
    path = ROOT / "tests" / module
    return path.with_name(f"test_{path.name.lstrip('_')}")


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in repository_files():
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
        if name not in MAY_NAME_HOSTS:
            found += [f"{name}:{number}: {line}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_no_file_names_a_package_registry() -> None:
    assert lines_matching(REGISTRY_HOST) == []


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    assert lines_matching(MACHINE_PATH) == []


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/home/ada/a2a-gateway", True),
        ("cd /root/.pyenv", True),
        ('"/work/main"', True),
        ("file:///Users/ada", True),
        (r"C:\Users\ada", True),
        ("https://host.example/home/page", False),
        ("$(HOME)/work/main", False),
        ("~/work/main", False),
        ("/home/", False),
        ("tests/work/x", False),
    ],
)
def test_a_path_of_somebodys_machine_is_told_from_a_url_and_a_relative_path(line: str, is_one: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is is_one


def test_the_lock_takes_everything_from_the_public_index() -> None:
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:registry|url) = "https?://([^/"]+)', lock)) == LOCK_HOSTS
    assert set(re.findall(r"source = \{ (\w+) =", lock)) == {"registry", "editable"}


def test_every_module_has_a_test_file_at_the_mirrored_place() -> None:
    without = {module for module in modules() if not mirror(module).is_file()}
    assert without == set(TESTED_ELSEWHERE)
    assert [path for path in TESTED_ELSEWHERE.values() if not (ROOT / path).is_file()] == []


def test_init_files_are_empty() -> None:
    found = chain.from_iterable((ROOT / top).rglob("__init__.py") for top in (*PACKAGES, "tests"))
    assert [path for path in found if path.stat().st_size] == []


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "adr").iterdir())
    assert [name[:5] for name in names] == [f"{number:04}-" for number in range(1, len(names) + 1)]


def test_every_decision_has_its_number_and_the_three_parts() -> None:
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        headings = re.findall(r"^#+ .*", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings[0].startswith(f"# {int(path.name[:4])}. "), path.name
        assert headings[1:] == ["## Context", "## Decision", "## Consequences"], path.name


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in repository_files()
        if page.suffix == ".md"
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_makefile_and_image_use_the_same_uv() -> None:
    makefile = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    image = re.search(r"uv==(\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert makefile is not None
    assert image is not None
    assert makefile[1] == image[1]
