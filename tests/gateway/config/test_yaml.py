"""YAML 1.2 and `${...}`: the reasons of syntax errors, the limits on size, the types of scalars."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.problems import ConfigInvalid
from gateway.config.yaml import References, read


def data(text: str, env: Mapping[str, str] | None = None, base_dir: Path = Path("/srv/gateway")) -> object:
    document = read(text, "gateway.yaml", References(env or {}, base_dir))
    if document.all_problems():
        raise ConfigInvalid(document.all_problems())
    return document.data


def refusal(text: str) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        data(text)
    return str(refused.value)


SYNTAX = {
    "bracket left open": (
        "a: [",
        "gateway.yaml:1:5: not valid YAML: a value is missing here, or a bracket before it is not closed",
    ),
    "tab": (
        "a:\n\t- b",
        (
            "gateway.yaml:2:1: not valid YAML: a value cannot begin with this character; "
            "indent with spaces and put the value in quotes"
        ),
    ),
    "second colon": (
        "a: b: c",
        "gateway.yaml:1:5: not valid YAML: there is a second `: ` on this line; put the value in quotes",
    ),
    "quote left open": ("a: 'x", "gateway.yaml:1:6: not valid YAML: a quote is not closed before the end of the file"),
    "control character": ("a: \x00", "gateway.yaml:1:4: the character U+0000 is not allowed in a YAML file"),
    "two documents": (
        "---\na: 1\n---\nb: 1",
        "gateway.yaml:3:1: not valid YAML: a second document begins here; the file must hold only one",
    ),
    "reference between braces": (
        "{a: ${B}}",
        (
            "gateway.yaml:1:6: not valid YAML: inside { } and [ ] YAML reads the brace of ${...} as a mapping; "
            'put the value in quotes: "${...}"'
        ),
    ),
    "reference between brackets": (
        "a:\n  b: [x, http://${B}:80]",
        (
            "gateway.yaml:2:18: not valid YAML: inside { } and [ ] YAML reads the brace of ${...} as a mapping; "
            'put the value in quotes: "${...}"'
        ),
    ),
    "reference in braces": (
        "a: {${B:-x}}",
        (
            "gateway.yaml:1:6: not valid YAML: inside { } and [ ] YAML reads the brace of ${...} as a mapping; "
            'put the value in quotes: "${...}"'
        ),
    ),
    "comma missing": ("{a: b c: d}", "gateway.yaml:1:8: not valid YAML: a comma or the closing bracket is missing"),
    "unknown alias": ("a: *x", "gateway.yaml:1:4: not valid YAML: found undefined alias 'x'"),
    "too deep": ("[" * 5000, "gateway.yaml:1:101: not valid YAML: values are nested deeper than 100 levels"),
}


@pytest.mark.parametrize(("text", "message"), SYNTAX.values(), ids=SYNTAX.keys())
def test_a_file_that_is_not_yaml_has_that_one_problem(text: str, message: str) -> None:
    assert refusal(text) == message


REFERENCES = {
    "variable that is not set": (
        "${NOWHERE}",
        "the environment variable NOWHERE is not set; set it, or give a default: ${NOWHERE:-...}",
    ),
    "never closed": ('"${A"', "`${` is never closed with `}`; write $${ for the two characters themselves"),
    "one inside another": ("${A:-${B}}", "`${` inside `${...}` is not possible; a default is plain text"),
    "no name": (
        "${a b}",
        "`${...}` must be ${NAME}, ${NAME:-default} or ${file:path}; write $${ for a literal ${",
    ),
    "file that does not exist": (
        "${file:key.txt}",
        "the file /srv/gateway/key.txt cannot be read: no such file or directory",
    ),
}


@pytest.mark.parametrize(("value", "message"), REFERENCES.values(), ids=REFERENCES.keys())
def test_a_reference_that_cannot_be_filled_in_is_an_error_at_its_place(value: str, message: str) -> None:
    assert refusal(f"a:\n  b: {value}") == f"gateway.yaml:2:6: a.b: {message}"


CONTENT = {
    "python object": (
        "a: !!python/object:os.system x",
        "a: the tag !!python/object:os.system is not supported; write the value without a tag",
    ),
    "own tag": ("a: !env x", "a: the tag !env is not supported; write the value without a tag"),
    "half a character": (
        r'a: "\ud800"',
        "a: the text holds half of a surrogate pair, which is no character",
    ),
    "alias inside of its anchor": ("a: &h {X: *h}", "a.X: the alias stands inside of what it names"),
}


@pytest.mark.parametrize(("text", "message"), CONTENT.values(), ids=CONTENT.keys())
def test_a_value_that_yaml_allows_and_a_configuration_does_not_is_refused(text: str, message: str) -> None:
    assert refusal(text) == f"gateway.yaml:1:4: {message}"


@pytest.mark.parametrize("key", ["[a]", "{a: b}", r'"\ud800"'])
def test_a_key_is_plain_text(key: str) -> None:
    assert refusal(f"? {key}\n: 1") == "gateway.yaml:1:3: a key must be plain text"


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} {'[' * 60}*a{n - 1}{']' * 60}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "the file grows to more than 100000 values through its aliases (*name)"),
        (CHAIN, "values are nested deeper than 100 levels"),
    ],
    ids=["wide", "deep"],
)
def test_aliases_cannot_make_a_small_file_huge(text: str, message: str) -> None:
    assert refusal(text).endswith(message)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("1:30", "1:30"),
        ("2026-11-01", "2026-11-01"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("9" * 5000, "9" * 5000),
        ("1e-1", 0.1),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("~", None),
        ("", None),
        ("[a, 2]", ["a", 2]),
    ],
)
def test_a_scalar_is_what_yaml_1_2_makes_of_it(scalar: str, value: object) -> None:
    assert data(f"a: {scalar}") == {"a": value}


def test_a_key_is_the_text_it_is_written_as() -> None:
    assert data("{on: a, 1: b, null: c, true: d}") == {"on": "a", "1": "b", "null": "c", "true": "d"}


def test_an_alias_repeats_what_its_anchor_names() -> None:
    assert data("a: &x {b: [1]}\nc: *x") == {"a": {"b": [1]}, "c": {"b": [1]}}


@pytest.mark.parametrize(
    ("value", "env", "expected"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("${A}", {"A": "5"}, 5),
        ("${A}", {"A": "true"}, True),
        ("${A:-}", {"A": ""}, None),
        ("${A:-}", {}, None),
        ("${A}", {"A": "${B}"}, "${B}"),
        ("${A:-d}", {}, "d"),
        ("${A:-8080}", {}, 8080),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A:-http://h:1}", {}, "http://h:1"),
        ('"${A}"', {"A": "5"}, "5"),
        ("${A}0", {"A": "5"}, "50"),
        ("http://${A}:${B:-80}/", {"A": "h"}, "http://h:80/"),
        ("$${A}", {"A": "x"}, "${A}"),
        ("$A", {}, "$A"),
    ],
)
def test_references_are_filled_in(value: str, env: dict[str, str], expected: object) -> None:
    assert data(f"a: {value}", env) == {"a": expected}


def test_a_file_is_filled_in_without_the_end_of_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n", encoding="utf-8")
    assert data("a: ${file:key}", base_dir=tmp_path) == data(f"a: ${{file:{tmp_path}/key}}") == {"a": "sk-1"}
