"""Cards: their words, choices and inputs."""

from typing import Any

import pytest

from adapters.copilot.activities import Attachment, CardAction
from adapters.copilot.cards import Card, choices_of, is_card, read_card

CARD = "application/vnd.microsoft.card."


def card(kind: str, content: Any) -> Card:
    attachment = Attachment(content_type=f"{CARD}{kind}", content=content)
    assert is_card(attachment)
    return read_card(attachment)


def adaptive(*body: Any, actions: Any = ()) -> Card:
    return card("adaptive", {"type": "AdaptiveCard", "version": "1.5", "body": list(body), "actions": list(actions)})


def test_a_hero_card_says_its_words_and_offers_its_buttons() -> None:
    buttons = [
        {"type": "imBack", "title": "Red", "value": "red"},
        {"type": "messageBack", "title": "Blue", "value": {"colour": "blue"}},
        {"type": "openUrl", "title": "More", "value": "https://example.com/"},
    ]
    found = card("hero", {"title": "Colours", "subtitle": "of the year", "text": "Choose", "buttons": buttons})
    assert found.text == "Colours\nof the year\nChoose\nMore: https://example.com/"
    assert found.choices == [{"title": "Red", "value": "red"}, {"title": "Blue", "value": {"colour": "blue"}}]


def test_suggested_actions_are_choices() -> None:
    found = choices_of([CardAction("imBack", "Yes", "y"), CardAction("imBack", None, "no"), CardAction("imBack")])
    assert found.choices == [{"title": "Yes", "value": "y"}, {"title": "no", "value": "no"}]


def test_an_adaptive_card_is_read_whole() -> None:
    column = {"type": "Column", "items": [{"type": "TextBlock", "text": "12 EUR"}]}
    found = adaptive(
        {"type": "TextBlock", "text": "Order 7"},
        {"type": "ColumnSet", "columns": [column]},
        {"type": "FactSet", "facts": [{"title": "To", "value": "Oslo"}]},
        {"type": "RichTextBlock", "inlines": ["paid ", {"type": "TextRun", "text": "today"}]},
        {"type": "Table", "rows": [{"cells": [{"items": [{"type": "TextBlock", "text": "cell"}]}]}]},
    )
    assert found.text == "Order 7\n12 EUR\nTo: Oslo\npaid today\ncell"
    assert (found.choices, found.inputs) == ([], [])


def test_the_actions_and_inputs_of_an_adaptive_card_are_choices_and_inputs() -> None:
    size = {
        "type": "Input.ChoiceSet",
        "id": "size",
        "label": "Which size?",
        "choices": [{"title": "Small", "value": "s"}, {"title": "Large", "value": "l"}],
    }
    below = {"type": "AdaptiveCard", "body": [{"type": "Input.Text", "id": "why", "placeholder": "Reason"}]}
    found = adaptive(
        size,
        {"type": "ActionSet", "actions": [{"type": "Action.Execute", "title": "Later"}]},
        actions=[
            {"type": "Action.Submit", "title": "Buy", "data": {"buy": True}},
            {"type": "Action.OpenUrl", "title": "Terms", "url": "https://example.com/terms"},
            {"type": "Action.ShowCard", "title": "Refuse", "card": below},
        ],
    )
    assert found.text == "Which size?\nTerms: https://example.com/terms"
    assert found.choices == [{"title": "Later", "value": "Later"}, {"title": "Buy", "value": {"buy": True}}]
    assert found.inputs == [
        {
            "type": "ChoiceSet",
            "id": "size",
            "label": "Which size?",
            "choices": [{"title": "Small", "value": "s"}, {"title": "Large", "value": "l"}],
        },
        {"type": "Text", "id": "why", "placeholder": "Reason"},
    ]


def test_an_oauth_card_names_the_page_and_the_party() -> None:
    buttons = [{"type": "signin", "title": "Sign in", "value": "https://login.example/"}]
    found = card("oauth", {"text": "Please", "connectionName": "mail", "buttons": buttons})
    assert (found.sign_in, found.party, found.text) == ("https://login.example/", "oauth:mail", "Please")


def test_an_oauth_card_without_a_page_asks_for_nothing() -> None:
    found = card("oauth", {"text": "Please", "buttons": [{"type": "signin", "title": "Sign in"}]})
    assert (found.sign_in, found.text) == (None, "Please")


@pytest.mark.parametrize(
    "content",
    [None, 5, [], {"body": 5}, {"body": [5, {"type": 5}, {"text": 5}]}, {"buttons": [5, {}], "title": []}],
)
@pytest.mark.parametrize("kind", ["adaptive", "hero", "oauth", "receipt", "something-new"])
def test_a_card_of_another_form_says_nothing_and_breaks_nothing(kind: str, content: Any) -> None:
    found = card(kind, content)
    assert (found.choices, found.inputs, found.sign_in) == ([], [], None)


@pytest.mark.parametrize(
    "value", ["magic", "http://plain.example/x", "https://a b/", "https://u@h.example/", "https://[x/"]
)
def test_a_button_to_sign_in_that_leads_nowhere_is_a_choice(value: str) -> None:
    buttons = [{"type": "signin", "title": "Code", "value": value}]
    found = card("oauth", {"text": "Please", "buttons": buttons})
    assert (found.sign_in, found.text, found.choices) == (None, "Please", [{"title": "Code", "value": value}])


@pytest.mark.parametrize(
    ("content", "text"),
    [('{"type": "AdaptiveCard", "body": [{"type": "TextBlock", "text": "hey"}]}', "hey"), ("{no", ""), (5, "")],
)
def test_a_card_may_be_its_json_text(content: object, text: str) -> None:
    assert card("adaptive", content).text == text
