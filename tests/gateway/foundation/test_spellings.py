"""A secret is found in every form in which a service may write it."""

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from gateway.foundation.spellings import pattern_of

SECRETS = [
    'Sec/ret+One&"x"<y>=zz1',
    "-----BEGIN K-----\nABCDEFGHIJ/+klm\nNOPQ\n-----END K-----",
    "schlüssel-geheim-ß9",
    "abcd",
    "abcdefgh",
    "päss wörd%2F&",
    "file-secret-901",
    "back\\slash\\\\'quoted'",
    "key-\U0001f511-of-mine",
]


def as_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def base64_behind(before: bytes, text: str, after: bytes = b"") -> str:
    return base64.b64encode(before + text.encode() + after).decode()


def upper_hex(text: str) -> str:
    """JSON whose escapes have capitals."""
    return re.sub(r"\\u[0-9a-f]{4}", lambda escape: f"\\u{escape[0][2:].upper()}", as_json(text))


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "upper case": lambda text: text.upper(),
    "JSON": as_json,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda text: as_json(json.dumps(text)).removeprefix('\\"').removesuffix('\\"'),
    "JSON in JSON in JSON": lambda text: as_json(as_json(as_json(text))),
    "JSON with slashes escaped": lambda text: as_json(text).replace("/", "\\/"),
    "JSON for HTML": lambda text: as_json(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    "JSON of upper hex": upper_hex,
    "HTML": html.escape,
    "HTML with quotes": lambda text: html.escape(text, quote=False),
    "HTML by numbers": lambda text: html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#039;"),
    "URL": lambda text: quote(text, safe=""),
    "URL with slashes": quote,
    "form": quote_plus,
    "URL of lower hex": lambda text: "".join(
        sign if sign.isascii() and sign.isalnum() else "".join(f"%{byte:02x}" for byte in sign.encode())
        for sign in text
    ),
    "URL in URL": lambda text: quote(quote(text, safe=""), safe=""),
    "Base64": lambda text: base64_behind(b"", text),
    "Base64 behind one": lambda text: base64_behind(b"u", text),
    "Base64 behind two": lambda text: base64_behind(b"uu", text),
    "Base64 behind a user": lambda text: base64_behind(b"user:", text),
    "Base64 before more": lambda text: base64_behind(b"", text, b"tailtail"),
    "Base64 without padding": lambda text: base64_behind(b"", text).rstrip("="),
    "Base64 of URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "Base64 in a URL": lambda text: quote(base64_behind(b"", text), safe=""),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_in_every_form(secret: str, form: str) -> None:
    pattern = pattern_of([secret], cased=True)
    assert pattern is not None
    text = FORMS[form](secret)
    masked = pattern.sub("*", f"[{text}]")
    if "Base64" in form:  # What stands beside the secret is left, but for the signs that share its bits.
        assert "*" in masked
        assert secret[:3] not in "".join(decoded(masked))
    else:
        assert masked == "[*]"


def decoded(text: str) -> list[str]:
    """What the pieces of Base64 beside a mask say."""
    pieces = text.strip("[]").split("*")
    return [base64.b64decode(piece[: len(piece) // 4 * 4], altchars=b"-_").decode(errors="replace") for piece in pieces]


def test_the_longer_of_two_secrets_is_found_whole() -> None:
    pattern = pattern_of(["abcd", "abcd efgh"])
    assert pattern is not None
    assert pattern.sub("*", "abcd%20efgh abcd") == "* *"


def test_without_secrets_there_is_no_pattern() -> None:
    assert pattern_of([]) is None


def test_what_only_resembles_a_secret_in_base64_is_none() -> None:
    pattern = pattern_of(["abcd"])
    assert pattern is not None
    assert pattern.search(base64.b64encode(b"xabce abdd").decode()) is None
