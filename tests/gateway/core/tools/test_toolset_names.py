"""Names of tools: valid for every model, unique, and short where possible."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools.toolset import offered_names


def test_a_tool_keeps_its_own_name() -> None:
    assert offered_names([("github", "search"), ("files", "read-it")]) == ("search", "read-it")


def test_every_party_of_a_collision_gets_the_name_of_its_source() -> None:
    assert offered_names([("github", "search"), ("files", "read"), ("web", "search"), ("mail", "search")]) == (
        "github_search",
        "read",
        "web_search",
        "mail_search",
    )


def test_a_name_made_of_two_gives_way_to_nobody() -> None:
    assert offered_names([("a", "search"), ("b", "search"), ("c", "a_search")]) == (
        "a_search",
        "b_search",
        "c_a_search",
    )


def test_what_models_do_not_take_is_replaced() -> None:
    assert offered_names([("a", "get.user/Zoë")]) == ("get_user_Zo_",)
    assert offered_names([("a", "")]) == ("a",)


def test_two_names_of_one_source_that_become_the_same_are_marked() -> None:
    first, second = offered_names([("a", "x.y"), ("a", "x/y")])
    assert first != second
    assert first.startswith("a_x_y_")
    assert second.startswith("a_x_y_")


def test_a_long_name_is_cut_and_marked() -> None:
    first, second = offered_names([("a", "x" * 80 + "1"), ("a", "x" * 80 + "2")])
    assert (len(first), len(second), first[:55]) == (64, 64, "x" * 55)
    assert first != second


PAIRS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "a-b"]), st.text("ab_.é", max_size=4) | st.text(min_size=60, max_size=70)),
    unique=True,
    max_size=8,
)


@given(PAIRS)
def test_names_are_valid_and_distinct_and_do_not_hang_on_the_order(pairs: list[tuple[str, str]]) -> None:
    names = offered_names(pairs)
    assert len(set(names)) == len(pairs)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert dict(zip(pairs, names, strict=True)) == dict(zip(reversed(pairs), offered_names(pairs[::-1]), strict=True))
