"""Targets: the agent of each, the file that says the same, and the errors of a wrong one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.console.output import ExitCode, Stop
from gateway.cli.serve.targets import Agents, configuration, read_targets, target_lines
from gateway.config.plugins import InstalledShorthand, Registry
from gateway.ports.targets import EnvironmentValue, Shorthand, Target, TargetAgent, TargetForm, TargetProblem

FOLDER = Path("/srv/gateway")
KEY = {"OPENAI_API_KEY": "sk-secret"}
INSTALLED = Registry().shorthands()
FORMS = sorted(form.text for each in INSTALLED if each.shorthand is not None for form in each.shorthand.forms)


def read(
    *words: str,
    env: dict[str, str] | None = None,
    folder: Path = FOLDER,
    installed: Sequence[InstalledShorthand] = INSTALLED,
) -> Agents:
    return read_targets(words, KEY if env is None else env, Path.cwd(), folder, installed)


def agent(name: str, kind: str, settings: dict[str, Any]) -> Agents:
    return {name: {"type": kind, **settings}}


MEANINGS = {
    "openai:gpt-5.5": agent(
        "gpt-5-5", "openai-responses", {"model": "gpt-5.5", "api_key": EnvironmentValue("OPENAI_API_KEY")}
    ),
    "ollama:llama3.3:70b": agent(
        "llama3-3-70b", "openai-chat", {"model": "llama3.3:70b", "base_url": "http://localhost:11434/v1"}
    ),
    "chat:http://gpu:8000/v1#meta-llama/Llama-3": agent(
        "meta-llama-llama-3", "openai-chat", {"model": "meta-llama/Llama-3", "base_url": "http://gpu:8000/v1"}
    ),
    "chat:http://gpu/v1?a=b#m": agent("m", "openai-chat", {"model": "m", "base_url": "http://gpu/v1?a=b"}),
    "python:my_package.agents:reply": agent("agents", "python", {"ref": "my_package.agents:reply"}),
    "python:/opt/agents/my_agent.py:Bot.reply": agent(
        "my-agent", "python", {"ref": "/opt/agents/my_agent.py:Bot.reply"}
    ),
    "a2a:https://agents.example/travel": agent("travel", "a2a", {"url": "https://agents.example/travel"}),
    "a2a:http://agents.example": agent("agents-example", "a2a", {"url": "http://agents.example"}),
    "notes=ollama:llama3.3": agent(
        "notes", "openai-chat", {"model": "llama3.3", "base_url": "http://localhost:11434/v1"}
    ),
    "a=ollama:b=c": agent("a", "openai-chat", {"model": "b=c", "base_url": "http://localhost:11434/v1"}),
    "ollama:${HOME}": agent("home", "openai-chat", {"model": "${HOME}", "base_url": "http://localhost:11434/v1"}),
}


@pytest.mark.parametrize(("text", "target"), MEANINGS.items())
def test_a_target_stands_for_an_agent(text: str, target: Agents) -> None:
    assert read(text) == target


def test_a_file_of_python_is_named_from_the_folder_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, ref in ((tmp_path, "./my.py:f"), (tmp_path / "conf", "../my.py:f")):
        for file in ("./my.py", "my.py"):
            assert read(f"python:{file}:f", folder=folder)["my"]["ref"] == ref


def test_several_targets_are_one_file_with_everything_quoted_that_yaml_would_misread() -> None:
    targets = read("openai:gpt-5.5", "yes=ollama:4.10", "odd=ollama:a: b", "home=ollama:${HOME}")
    assert configuration(targets, {"host": "::1", "port": 9000}) == (
        "version: 1\n"
        "server:\n"
        '  host: "::1"\n'
        "  port: 9000\n"
        "agents:\n"
        "  gpt-5-5:\n"
        "    type: openai-responses\n"
        "    model: gpt-5.5\n"
        "    api_key: ${OPENAI_API_KEY}\n"
        "  yes:\n"
        "    type: openai-chat\n"
        '    model: "4.10"\n'
        "    base_url: http://localhost:11434/v1\n"
        "  odd:\n"
        "    type: openai-chat\n"
        '    model: "a: b"\n'
        "    base_url: http://localhost:11434/v1\n"
        "  home:\n"
        "    type: openai-chat\n"
        '    model: "$${HOME}"\n'
        "    base_url: http://localhost:11434/v1\n"
    )


WRONG = {
    ("opnai:gpt-5.5",): "'opnai:gpt-5.5' is no target; did you mean 'openai:gpt-5.5'?",
    ("mine=pyton:a:b",): "'mine=pyton:a:b' is no target; did you mean 'mine=python:a:b'?",
    ("gpt-5.5",): f"'gpt-5.5' is no target; write one of {', '.join(FORMS)}",
    ("openai",): "'openai' names no model; write openai:MODEL, such as openai:gpt-5.5",
    ("nonesuch:http://h",): f"'nonesuch:http://h' is no target; write one of {', '.join(FORMS)}",
    ("gateway.yaml",): "'gateway.yaml' is no target; to serve a file, write: serve -c gateway.yaml",
    ("./my_agent.py:reply",): "'./my_agent.py:reply' is no target; did you mean 'python:./my_agent.py:reply'?",
    ("http://h:1/v1#m",): "'http://h:1/v1#m' is no target; did you mean 'chat:http://h:1/v1#m'?",
    ("openai:",): "'openai:' names no model; write openai:MODEL, such as openai:gpt-5.5",
    ("a=ollama:",): "'a=ollama:' names no model; write a=ollama:MODEL, such as ollama:llama3.3",
    ("chat:http://h/v1",): "'chat:http://h/v1' names no model; write it behind the address: 'chat:http://h/v1#MODEL'",
    ("chat:h:1/v1#m",): "'chat:h:1/v1#m' has no address of a server; did you mean 'chat:http://h:1/v1#m'?",
    ("chat:",): "'chat:' has no address of a server; did you mean 'chat:http://localhost:8000/v1#MODEL'?",
    ("python:./a.py",): "'python:./a.py' names no function; write it behind a colon: 'python:./a.py:reply'",
    ("python:",): "'python:' names no function; write it behind a colon: 'python:./my_agent.py:reply'",
    ("My_Bot=ollama:m",): (
        "'My_Bot=ollama:m' cannot be called 'My_Bot'; a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -: "
        "it is part of the agent's URL"
    ),
    ("a2a:http://[h",): "'a2a:http://[h' cannot be read: Invalid IPv6 URL",
    ("assistants:https://[h#a",): "'assistants:https://[h#a' cannot be read: Invalid IPv6 URL",
    ("ollama:模型",): "'ollama:模型' gives no name that a URL could carry; write one in front: my-agent=ollama:模型",
}


@pytest.mark.parametrize(("words", "message"), WRONG.items(), ids=str)
def test_a_wrong_target_says_what_to_write(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Stop) as stopped:
        read(*words)
    assert (stopped.value.code, stopped.value.text) == (ExitCode.USAGE, f"serve: {message}")


def test_two_targets_of_one_name_need_a_name() -> None:
    with pytest.raises(Stop) as stopped:
        read("ollama:m", "chat:http://h/v1#m")
    assert stopped.value.text == "serve: two targets are called 'm'; name one of them: another-name=chat:http://h/v1#m"


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": ""}])
def test_a_missing_openai_key_is_reported(env: dict[str, str]) -> None:
    with pytest.raises(Stop) as stopped:
        read("openai:gpt-5.5", env=env)
    assert (stopped.value.code, stopped.value.text) == (
        ExitCode.CONFIG_INVALID,
        (
            "serve: 'openai:gpt-5.5' needs the key of an OpenAI account; set OPENAI_API_KEY, as in: "
            "OPENAI_API_KEY=sk-... a2a-gateway serve openai:gpt-5.5"
        ),
    )


# --- adapters of others -----------------------------------------------------------------------------------------------


def shorthand(name: str, *forms: TargetForm, read: Callable[[Target], TargetAgent | None]) -> InstalledShorthand:
    return InstalledShorthand(name, f"{name}-package 1.2", Shorthand(forms, read))


def by_url(target: Target) -> TargetAgent:
    if not target.rest:
        raise TargetProblem(f"names no address; write {target.spelt('far:URL')}")
    return TargetAgent("far", {"url": target.rest})


FAR = TargetForm("far:URL", "a service far away", lambda text: text.startswith("http"))


def test_a_target_that_two_adapters_claim_is_refused_and_both_are_named() -> None:
    twins = [shorthand("one", FAR, read=by_url), shorthand("two", FAR, read=by_url)]
    with pytest.raises(Stop) as stopped:
        read("far:http://h", installed=twins)
    assert (stopped.value.code, stopped.value.text) == (
        ExitCode.USAGE,
        (
            "serve: 'far:http://h' is a target of several adapters, 'one' of one-package 1.2 and 'two' of two-package 1.2; "
            "keep one of them, or write a file: a2a-gateway init"
        ),
    )


def test_an_adapter_may_leave_a_target_of_its_kind_to_another() -> None:
    def only_local(target: Target) -> TargetAgent | None:
        return TargetAgent("near", {}) if target.rest == "here" else None

    several = [shorthand("one", FAR, read=only_local), shorthand("two", FAR, read=by_url)]
    assert read("far:there", installed=several) == agent("far", "two", {"url": "there"})
    assert read("x=far:there", installed=several) == agent("x", "two", {"url": "there"})
    with pytest.raises(Stop, match="'far:there' is no target; write one of far:URL"):
        read("far:there", installed=several[:1])


def test_a_target_that_only_one_of_two_adapters_understands_is_its_own() -> None:
    def refuses(_: Target) -> TargetAgent:
        raise TargetProblem("is nothing for it")

    several = [shorthand("one", FAR, read=refuses), shorthand("two", FAR, read=by_url)]
    assert read("far:there", installed=several) == agent("far", "two", {"url": "there"})


def test_a_text_without_a_kind_is_shown_as_every_target_that_it_may_be() -> None:
    with pytest.raises(Stop) as stopped:
        read("a=http://h", installed=[*INSTALLED, shorthand("one", FAR, read=by_url)])
    assert "'a=far:http://h'" in stopped.value.text
    assert "'a=chat:http://h'" in stopped.value.text


def test_an_adapter_that_cannot_be_used_may_be_the_one_that_knows_the_target() -> None:
    broken = InstalledShorthand("broken", "broken-package 1.2", None, "no GPU")
    with pytest.raises(Stop) as stopped:
        read("near:x", installed=[broken, shorthand("one", FAR, read=by_url)])
    assert stopped.value.text == (
        "serve: 'near:x' is no target; write one of far:URL; those of 'broken' cannot be used: no GPU"
    )


def test_nested_settings_are_written_as_literals_and_references() -> None:
    def nested(_: Target) -> TargetAgent:
        key = EnvironmentValue("FAR_KEY")
        return TargetAgent("far", {"auth": {"key": key, "scopes": ["a", "${b}"]}, "port": 80, "tls": True})

    targets = read("far:x", installed=[shorthand("one", FAR, read=nested)])
    assert configuration(targets, {}).partition("type: one\n")[2] == (
        '    auth: {"key": "${FAR_KEY}", "scopes": ["a", "$${b}"]}\n    port: 80\n    tls: true\n'
    )


def test_the_help_has_a_line_for_every_form() -> None:
    lines = target_lines([*INSTALLED, shorthand("one", FAR, read=by_url)])
    assert [line.split()[0] for line in lines] == [*sorted([*FORMS, "far:URL"]), "name=TARGET"]
    assert "a service far away" in "\n".join(lines)
