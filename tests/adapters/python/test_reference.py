"""Settings of the `python` adapter, and finding the function that they name."""

import queue
import sys
import token
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import a2a_gateway
from adapters.python.function import PythonFunction, PythonSettings, factory
from adapters.python.tool import PythonTool, PythonToolSettings
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from gateway.ports.tools import ToolError, ToolRun
from gateway.testing.adapter_scripts import collect, failure, request, text
from tests.adapters.python.python_agents import agent_of, made


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_the_gateway_keeps_the_history_of_a_function() -> None:
    assert agent_of(lambda turn: None).ownership == Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)


def test_the_factory_declares_whether_an_agent_may_reply_directly() -> None:
    assert factory.settings is PythonSettings
    assert factory.build is PythonFunction
    assert not factory.direct_replies(PythonSettings(ref="a:b"))
    assert factory.direct_replies(PythonSettings(ref="a:b", direct_replies=True))


@pytest.mark.parametrize("ref", ["", "module", ":name", "module:", "module:not a name", "module:a..b", "./file.py"])
def test_a_ref_that_is_none_is_refused_with_the_two_forms(ref: str) -> None:
    with pytest.raises(ValidationError, match=r"must be `module:name` or `./file.py:name`"):
        PythonSettings(ref=ref)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="functoin"):
        PythonSettings.model_validate({"ref": "a:b", "functoin": "b"})


def settings_of(ref: str, base_dir: Path, **more: object) -> PythonSettings:
    return PythonSettings.model_validate({"ref": ref, **more}, context={"base_dir": base_dir})


def build(ref: str, base_dir: Path, **more: object) -> PythonFunction:
    made.append(PythonFunction(settings_of(ref, base_dir, **more)))
    return made[-1]


async def test_a_file_is_found_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'heard'\n")
    (tmp_path / "mine.py").write_text("import beside\ndef reply(text): return f'{beside.WORD} {text}'\n")
    adapter = build("./mine.py:reply", tmp_path)
    assert text(await collect(adapter, request("Hi"))) == "heard Hi"


async def test_a_file_is_found_relative_to_the_working_directory_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def reply(text): return text\n")
    monkeypatch.chdir(tmp_path)
    adapter = PythonFunction(PythonSettings(ref="mine.py:reply"))
    assert text(await collect(adapter, request("Hi"))) == "Hi"


async def test_a_module_beside_the_configuration_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent_beside_config.py").write_text(
        "class Agent:\n    def reply(text): return text\n"
    )  # fmt: skip
    adapter = build("agent_beside_config:Agent.reply", tmp_path)
    monkeypatch.delitem(sys.modules, "agent_beside_config")
    assert text(await collect(adapter, request("Hi"))) == "Hi"


def test_two_agents_of_one_file_share_its_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def one(text): ...\ndef two(text): ...\nassert __name__ != '__main__'\n")
    one, two = (settings_of(f"./mine.py:{name}", tmp_path).load() for name in ("one", "two"))
    assert one.__globals__ is two.__globals__


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [
        ("x = 1", "reply", "'./mine.py' has no 'reply'; check the name behind the colon"),
        ("reply = 1", "reply", "'reply' is no function but of type int; name one"),
        ("def reply(): ...", "reply", "'reply' does not take one argument (too many positional arguments); give it"),
        ("def reply(a, b): ...", "reply", "does not take one argument (missing a required argument: 'b'); give it"),
        ("def reply(*, turn): ...", "reply", "does not take one argument (too many positional arguments); give it"),
        ("reply = type", "reply", "'reply' does not take one argument"),
        ("def reply(", "reply", "importing './mine.py' failed with SyntaxError"),
        ("import not_installed", "reply", "failed with ModuleNotFoundError: No module named 'not_installed'; mend it"),
        ("1 / 0", "reply", "importing './mine.py' failed with ZeroDivisionError: division by zero; mend it"),
        ("raise SystemExit(1)", "reply", "importing './mine.py' failed with SystemExit: 1; mend it"),
        ("raise KeyboardInterrupt", "reply", "importing './mine.py' failed with KeyboardInterrupt; mend it"),
        (
            "import asyncio\nraise asyncio.CancelledError('no')",
            "reply",
            "importing './mine.py' failed with CancelledError: no; mend it",
        ),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_with_the_ref_and_the_remedy(
    tmp_path: Path, source: str, name: str, problem: str
) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ValueError, match="mine") as caught:
        build(f"./mine.py:{name}", tmp_path)
    assert f"'./mine.py:{name}': " in str(caught.value)
    assert problem in str(caught.value)


def test_a_file_that_is_not_there_is_refused_with_the_place_where_it_was_sought(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a relative path starts at the folder of the configuration file") as caught:
        build("./mine.py:reply", tmp_path)
    assert f"there is no file {str(tmp_path / 'mine.py')!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        ("no_such_module:reply", "there is no module 'no_such_module'; install it beside the gateway"),
        ("no_such.module:reply", "there is no module 'no_such'; install it"),
        ("json.no_such:reply", "there is no module 'json.no_such'; install it"),
        (".relative:reply", "importing '.relative' failed with TypeError"),
    ],
)
def test_a_module_that_is_not_there_is_refused_with_the_remedy(tmp_path: Path, ref: str, problem: str) -> None:
    with pytest.raises(ValueError, match=ref) as caught:
        build(ref, tmp_path)
    assert problem in str(caught.value)


def test_the_error_of_a_module_names_the_missing_one(tmp_path: Path) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed\n")
    with pytest.raises(ValueError, match=r"importing 'needs_more' failed .* No module named 'not_installed'"):
        build("needs_more:reply", tmp_path)


def test_the_error_of_a_module_that_fails_names_the_exception(tmp_path: Path) -> None:
    (tmp_path / "fails_at_import.py").write_text("1 / 0\n")
    with pytest.raises(ValueError, match="importing 'fails_at_import' failed with ZeroDivisionError"):
        build("fails_at_import:reply", tmp_path)
    (tmp_path / "interrupts_at_import.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(ValueError, match="importing 'interrupts_at_import' failed with KeyboardInterrupt; mend it"):
        build("interrupts_at_import:reply", tmp_path)


HIDDEN = {
    "a missing name": ("storage.py", "from storage import save\n", "with ImportError: cannot import name 'save'"),
    "a missing module": ("adapters/mine.py", "import adapters.mine\n", "No module named 'adapters.mine'"),
    "a missing attribute": (
        "storage.py",
        "import storage\nstorage.save\n",
        "with AttributeError: module 'storage' has no",
    ),
    "a module of the gateway's": ("gateway.py", "from gateway import ask\n", "cannot import name 'ask'"),
    "another module, later": (
        "storage.py",
        "def reply(text):\n    import storage\n    return storage.save(text)\n",
        "it imports 'storage'",
    ),
    "another name, later": (
        "adapters/mine.py",
        "async def reply(text):\n    from adapters.mine import save\n    return save(text)\n",
        "it imports 'adapters.mine'",
    ),
    "another module": (
        "storage.py",
        "import storage\ndef reply(text): return storage.save(text)\n",
        "it imports 'storage'",
    ),
}


@pytest.mark.parametrize(("beside", "source", "problem"), HIDDEN.values(), ids=HIDDEN)
def test_a_module_that_a_package_of_the_gateway_hides_is_named_with_what_to_do(
    tmp_path: Path, beside: str, source: str, problem: str
) -> None:
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).write_text("def save(text): return text\n")
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ValueError, match="mine") as caught:
        build("./mine.py:reply", tmp_path)
    top = Path(beside).parts[0]
    assert problem in str(caught.value)
    assert str(caught.value).endswith(
        f"; the package {top.removesuffix('.py')!r} of the gateway hides {str(tmp_path / top)!r} from Python: rename it"
    )


LATER = {
    "a missing name": ("storage.py", "from storage import save"),
    "a missing module": ("adapters/mine.py", "import adapters.mine"),
    "a missing attribute": ("storage.py", "import storage; storage.save"),
    "a module that imports it": ("storage.py", "import imports_it_too"),
}


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize(("beside", "code"), LATER.values(), ids=LATER)
async def test_a_module_that_is_hidden_from_a_later_import_is_named_with_what_to_do(
    tmp_path: Path, beside: str, code: str, run_in: str
) -> None:
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).write_text("def save(text): return text\n")
    (tmp_path / "imports_it_too.py").write_text("from storage import save\n")
    (tmp_path / "mine.py").write_text(f"def reply(text): exec({code!r})\ndef tool(): exec({code!r})\n")
    top = Path(beside).parts[0]
    remedy = (
        f"the package {top.removesuffix('.py')!r} of the gateway hides {str(tmp_path / top)!r} from Python: rename it"
    )
    assert (await failure(build("./mine.py:reply", tmp_path, run_in=run_in))).detail.endswith(remedy)

    settings = {"ref": "./mine.py:tool", "run_in": run_in}
    tool = PythonTool(PythonToolSettings.model_validate(settings, context={"base_dir": tmp_path}))
    with pytest.raises(ToolError) as caught:
        await tool.run(ToolRun("tool", {}, "key", "c", "p"))
    assert caught.value.detail.endswith(remedy)
    await tool.aclose()


@pytest.mark.parametrize("ref", ["storage:reply", "adapters.mine:reply", "gateway:reply"])
def test_a_module_is_not_found_under_the_name_of_a_package_of_the_gateway(tmp_path: Path, ref: str) -> None:
    for name in ("storage.py", "gateway.py", "adapters/mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def reply(text): return text\n")
    with pytest.raises(ValueError, match=r"the package '\w+' of the gateway hides '.*' from Python: rename it"):
        build(ref, tmp_path)


SHADOWED = {
    "of the standard library": ("token", "token.py", "token:reply", repr(token.__file__)),
    "built into Python": ("time", "time.py", "time:reply", "built into Python"),
    "of a dependency": ("yaml", "yaml/__init__.py", "yaml:reply", repr(yaml.__file__)),
    "the gateway's command": ("a2a_gateway", "a2a_gateway.py", "a2a_gateway:reply", repr(a2a_gateway.__file__)),
    "a module of a package": ("queue", "queue/mine.py", "queue.mine:reply", repr(queue.__file__)),
}


@pytest.mark.parametrize(("name", "beside", "ref", "found"), SHADOWED.values(), ids=SHADOWED)
def test_a_module_that_another_one_of_its_name_hides_is_told_with_both_and_what_to_do(
    tmp_path: Path, name: str, beside: str, ref: str, found: str
) -> None:
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).write_text("def reply(text): return text\n")
    with pytest.raises(ValueError, match="hides") as caught:
        build(ref, tmp_path)
    hidden = tmp_path / Path(beside).parts[0]
    assert str(caught.value).endswith(
        f"; another module {name!r} ({found}) hides {str(hidden)!r} from Python: rename it"
    )


@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_a_name_that_a_hidden_module_has_is_told_where_it_is_missed(tmp_path: Path, run_in: str) -> None:
    (tmp_path / "queue.py").write_text("def save(text): return text\n")
    (tmp_path / "mine.py").write_text("def reply(text):\n    import queue\n    return queue.save(text)\n")
    detail = (await failure(build("./mine.py:reply", tmp_path, run_in=run_in))).detail
    assert detail.endswith(f"hides {str(tmp_path / 'queue.py')!r} from Python: rename it")


@pytest.mark.parametrize("beside", ["lacks_reply.py", "lacks_reply/__init__.py", "lacks_reply/other.py"])
def test_a_module_that_is_found_beside_the_configuration_is_hidden_by_none(tmp_path: Path, beside: str) -> None:
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).write_text("")
    with pytest.raises(ValueError, match="has no 'reply'; check the name behind the colon"):
        build("lacks_reply:reply", tmp_path)
    del sys.modules["lacks_reply"]


def test_a_module_that_is_installed_under_the_folder_of_the_configuration_hides_too(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    for folder in (tmp_path / ".venv", tmp_path):
        (folder / "lacks_reply.py").write_text("")
    sys.path.append(str(tmp_path / ".venv"))
    with pytest.raises(ValueError, match=r"another module 'lacks_reply' \('.*/.venv/lacks_reply.py'\) hides"):
        build("lacks_reply:reply", tmp_path)
    del sys.modules["lacks_reply"]


async def test_a_file_may_have_the_name_of_a_package_of_the_gateway(tmp_path: Path) -> None:
    (tmp_path / "storage.py").write_text("import gateway.agent\ndef reply(text): return text\n")
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "agent.py").write_text("")
    assert text(await collect(build("./storage.py:reply", tmp_path), request("Hi"))) == "Hi"


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.get_running_loop().call_later(0, exit)",
        "import asyncio\nasyncio.get_event_loop().call_later(0, exit)",
    ],
)
async def test_a_module_finds_no_event_loop_when_it_is_imported(tmp_path: Path, source: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ValueError, match=r"importing './mine.py' failed with RuntimeError: .*event loop"):
        build("./mine.py:reply", tmp_path)


@pytest.mark.parametrize("ref", ["./mine.py:reply", "no_such_module:reply", "no_such.module:reply"])
def test_a_function_of_a_process_is_looked_for_without_loading_it(tmp_path: Path, ref: str) -> None:
    with pytest.raises(ValueError, match=r"there is no (file|module) .*(configuration file|`./file.py:name`)"):
        build(ref, tmp_path, run_in="process")
    (tmp_path / "mine.py").write_text("raise SystemExit(1)")
    (tmp_path / "beside_too.py").write_text("raise SystemExit(1)")
    build("./mine.py:reply", tmp_path, run_in="process")
    build("beside_too:reply", tmp_path, run_in="process")


async def test_a_probe_loads_the_function_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reply(): ...")
    with pytest.raises(AdapterError, match="'reply' does not take one argument"):
        await build("./mine.py:reply", tmp_path, run_in="process").probe()
    (tmp_path / "mine.py").write_text("def reply(text): return text")
    adapter = build("./mine.py:reply", tmp_path, run_in="process")
    assert await adapter.probe() == ProbeReport(notes=("./mine.py:reply is loaded",))
    assert text(await collect(adapter, request("Hi"))) == "Hi"
