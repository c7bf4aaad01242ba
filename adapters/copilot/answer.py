"""The activities of one turn -> adapter events. Law: it decides what was said and asked, never whether more will come.

The last message of a turn is a question if it has choices, or says that the bot expects input. A question is not part of the
answer, but what the task waits with.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, unquote_to_bytes

from msgspec.structs import replace

from adapters.copilot import activities
from adapters.copilot.activities import Activity, Attachment, stream_of
from adapters.copilot.cards import Card, choices_of, is_card, read_card
from adapters.copilot.plan import Plan
from adapters.copilot.texts import Texts
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import AdapterEvent, CallCompleted, ConsentAsked, Ending, PartReady, Progress

_JSON = "application/json"
_EXPECTS = "expectingInput"
_IGNORES = "ignoringInput"
_BASE64 = ";base64"
_STANDARD = str.maketrans("-_", "+/")
_FAILURES = frozenset(
    ("channelFailed", "botTimedOut", "botIssuedInvalidMessage", "agentTimedOut", "agentIssuedInvalidMessage")
)
"""Codes of a conversation that ends without success. Source: Bot Framework Activity schema, end of conversation."""
_CUT = {"timeout": "timeout", "error": "error"}
"""The results of a message in pieces that is not whole, with the names that callers know them by."""


@dataclass(frozen=True, slots=True)
class _Question:
    """`told` says that the text is part of the answer already, because it came in pieces."""

    text: str
    key: str
    data: dict[str, Json]
    told: bool

    @property
    def parts(self) -> tuple[Part, ...]:
        text = (Part(text=self.text),) if self.text else ()
        return (*text, Part(data=self.data, media_type=_JSON)) if self.data else text


class Answer:
    def __init__(self, *, cumulative: bool) -> None:
        """`cumulative` as in Texts."""
        self.spoke = False
        """Whether a message came, even an empty one."""
        self.expects = False
        """Whether the bot says of its last message that it waits for the user."""
        self.goes_on = False
        """Whether the bot says that something follows its last activity."""
        self.ended: str | None = None
        """The code with which the bot has ended the conversation; empty where it gives none."""
        self._texts = Texts(cumulative=cumulative)
        self._received: dict[str, list[Activity]] = {}
        """By their ids: the messages, without what tells nothing."""
        self._plan = Plan()
        self._question: _Question | None = None
        self._consents = False
        self._finish: str | None = None

    @property
    def open(self) -> bool:
        """Whether a message or a step of the plan has begun and not ended."""
        return self._texts.open or self._plan.open

    @property
    def failure(self) -> str | None:
        """The code with which the bot has ended the conversation instead of an answer."""
        return self.ended if self.ended in _FAILURES and not self.spoke else None

    def receive(self, activity: Activity) -> Sequence[AdapterEvent]:
        """Raises: ValueError for a message whose words cannot be read."""
        if activity.unreadable is not None:
            raise ValueError(f"a message cannot be read: {activity.unreadable}")
        match activity.type:
            case activities.TYPING:
                return self._typing(activity)
            case activities.MESSAGE:
                self.spoke = True
                return () if self._repeats(activity) else tuple(self._message(activity))
            case activities.EVENT:
                return self._texts.hold(self._step(activity))
            case activities.END_OF_CONVERSATION:
                self.ended = activity.code or ""
                self.spoke = self.spoke or bool(activity.text)
                return self._texts.say(activity.text or "", activity.id or "")
        return ()

    def close(self) -> Sequence[AdapterEvent]:
        """What is left to tell at the end of the turn."""
        told = [*self._texts.close()]
        if self._consents or self.ended is not None:
            # The task waits for the consent, or for nothing.
            told += self._withdraw()
        return told

    def completed(self, handle: str, *, state: Json, secret: Json = None) -> CallCompleted:
        question = self._question
        return CallCompleted(
            handle=handle,
            ending=Ending.COMPLETED if question is None else Ending.INPUT_REQUIRED,
            message=None if question is None else question.parts,
            finish=self._finish,
            state=state,
            secret=secret,
        )

    def _typing(self, activity: Activity) -> Sequence[AdapterEvent]:
        info, text = stream_of(activity), activity.text or ""
        self.goes_on = True
        if info is None or info.kind == "informative":
            if info is not None:
                self._texts.announce(info)
            return (Progress(text),) if text else ()
        if info.kind != "final":
            return self._texts.add(info, text)
        self.spoke, self.goes_on = True, False
        return self._texts.end(info.id, text)

    def _step(self, activity: Activity) -> Iterator[AdapterEvent]:
        for event in self._plan.receive(activity):
            self.goes_on = True
            yield event

    def _repeats(self, activity: Activity) -> bool:
        """Whether the message came before as it is. Some services repeat it with other data of the channel."""
        if not activity.id:
            return False
        known, plain = self._received.setdefault(activity.id, []), replace(activity, channel_data=None, entities=None)
        if plain in known:
            return True
        known.append(plain)
        return False

    def _message(self, activity: Activity) -> Iterator[AdapterEvent]:
        self.expects = activity.input_hint == _EXPECTS
        self.goes_on = activity.input_hint == _IGNORES
        info, text, key = stream_of(activity), activity.text or "", activity.id or ""
        known = [each for earlier in self._received.get(key, [])[:-1] for each in earlier.attachments]
        cards, files = _sorted(each for each in activity.attachments if is_card(each) or each not in known)
        cards.append(choices_of(activity.suggested_actions))
        words = [card.text for card in cards if card.text and not card.sign_in]
        data, full = _asked(cards), "\n\n".join(filter(None, (text, *words)))
        yield from self._withdraw(full, key)
        if info is not None:
            self._finish = _CUT.get(info.result or "", self._finish)
            yield from self._texts.end(info.id, text)
        if data or self.expects:
            self._question = _Question(full, key, data, told=info is not None)
        else:
            if info is None:
                yield from self._texts.say(text, key)
            for number, word in enumerate(words):
                yield from self._texts.say(word, f"{key}#{number}" if key else "")
        yield from self._texts.hold(PartReady(part) for part in files)
        consents = [ConsentAsked(card.sign_in, card.party, card.text) for card in cards if card.sign_in]
        self._consents = self._consents or bool(consents)
        yield from self._texts.hold(consents)

    def _withdraw(self, text: str = "", key: str = "") -> Iterator[AdapterEvent]:
        """A question that something follows is part of the answer after all, unless a message with this text and id is an
        update of it."""
        question, self._question = self._question, None
        if question is None or (key and question.key == key and text.startswith(question.text)):
            return
        if not question.told:
            yield from self._texts.say(question.text, question.key)
        yield from self._texts.hold(PartReady(part) for part in question.parts if part.text is None)


def _asked(cards: Iterable[Card]) -> dict[str, Json]:
    """The choices and the inputs of a message, as callers get them; empty where it has none."""
    choices, inputs = [], []
    for card in cards:
        choices += card.choices
        inputs += card.inputs
    return {name: found for name, found in (("choices", choices), ("inputs", inputs)) if found}


def _sorted(attachments: Iterable[Attachment]) -> tuple[list[Card], list[Part]]:
    cards, files = [], []
    for attachment in attachments:
        if is_card(attachment):
            cards.append(read_card(attachment))
        elif attachment.content_url:
            files.append(_file(attachment, attachment.content_url))
        elif attachment.content is not None:
            files.append(Part(data=attachment.content, media_type=attachment.content_type or None))
    return cards, files


def _file(attachment: Attachment, url: str) -> Part:
    kind, name = attachment.content_type or None, attachment.name or None
    head, comma, content = url.partition(",")
    if not (head.startswith("data:") and comma):
        return Part(url=url, media_type=kind, filename=name)
    plain, given = not head.endswith(_BASE64), head.removeprefix("data:").removesuffix(_BASE64)
    raw = base64.b64encode(unquote_to_bytes(content)).decode() if plain else _base64(unquote(content))
    if raw is None:
        return Part(url=url, media_type=kind, filename=name)
    return Part(raw=raw, media_type=kind or given or None, filename=name)


def _base64(content: str) -> str | None:
    """The bytes in the one form that callers get; None for what has none. Bots leave out the padding, break lines, and use the
    letters for addresses."""
    bare = "".join(content.split()).translate(_STANDARD).rstrip("=")
    try:
        return base64.b64encode(base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)).decode()
    except ValueError:
        return None
