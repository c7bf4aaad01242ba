"""The forms in which a secret may stand in a text. Law: one table for all that mask."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html.entities import codepoint2name

SHORTEST_SECRET = 4
"""Characters. Anybody can guess a shorter one, which is a part of many words."""

_QUOTES = 14
"""Backslashes that may stand before the one of an escape: JSON in JSON doubles them each time."""
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BEGINNING, _LONG = 6, 12

_Form = tuple[str, str]
"""The first character of a form, and a pattern of what follows."""


def pattern_of(secrets: Iterable[str], *, cased: bool = False, begun: bool = False) -> re.Pattern[str] | None:
    """Finds each of the secrets as it is, and as a service may quote it: in JSON, also inside another text, in HTML, in an
    address, and in Base64, also behind something else. `cased` finds it in capitals and in small letters too, `begun` by its
    beginning, as a vendor shows a key. None without secrets.
    """
    # The longest first: another may be a part of it.
    known = sorted(
        {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=lambda each: (-len(each), each)
    )
    forms = [form for secret in known for form in _forms(secret, cased=cased)]
    if begun:
        rest = r"[^\s\"']*"
        forms += [(first, more + rest) for secret in known if len(secret) >= _LONG
                  for first, more in _quoted(secret[:_BEGINNING])]  # fmt: skip
    # By their first characters, so that most places of a text are passed over at once.
    by_first: dict[str, list[str]] = defaultdict(list)
    for first, more in forms:
        by_first[first].append(more)
    patterns = [f"{re.escape(first)}(?:{'|'.join(dict.fromkeys(more))})" for first, more in by_first.items()]
    return re.compile("|".join(patterns)) if patterns else None


def beginnings(text: str, secrets: Iterable[str], ends: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where a secret begins in the text, with six or more characters, and goes on up to one of the ends: as it is, in
    capitals or in small letters, and quoted; not in Base64. In the order of the text, the longest first."""
    found: list[tuple[int, int]] = []
    for secret in secrets:
        for form in dict.fromkeys((secret, secret.upper(), secret.lower())) if len(secret) > _BEGINNING else ():
            for begun in _beginning(form[:_BEGINNING]).finditer(text):
                end = begun.end()
                for sign in form[_BEGINNING:]:
                    more = _beginning(sign).match(text, end)
                    if more is None:
                        break
                    end = more.end()
                if ends.match(text, end) is not None:
                    found.append((begun.start(), end))
    return sorted(found, key=lambda span: (span[0], -span[1]))


@lru_cache(maxsize=1024)
def _beginning(signs: str) -> re.Pattern[str]:
    return re.compile("".join(_any(_sign(sign)) for sign in signs))


def _forms(secret: str, *, cased: bool) -> Iterator[_Form]:
    for form in dict.fromkeys((secret, secret.upper(), secret.lower()) if cased else (secret,)):
        yield from _quoted(form)
    for before in range(3):
        yield from _in_base64(secret.encode(errors="replace"), before)


def _quoted(text: str) -> list[_Form]:
    runs = re.findall(r"\\+|[^\\]", text)
    rest = "".join(map(_any, map(_sign, runs[1:])))
    return [(first, more + rest) for first, more in _sign(runs[0])]


def _sign(sign: str) -> list[_Form]:
    """The forms of one character, or of backslashes in a row."""
    if sign.isascii() and sign.isalnum():
        return [(sign, "")]
    units = [sign.encode("utf-16-be", "surrogatepass")[at : at + 2] for at in range(0, 4 * len(sign), 2)]
    escaped = rf"\\{{1,{_QUOTES + 1}}}".join(f"u{_hex(unit)}" for unit in units if unit)
    forms = [
        ("\\", rf"\\{{0,{_QUOTES}}}{escaped}"),
        ("%", "%".join(f"(?:25){{0,3}}{_hex(bytes([each]))}" for each in sign.encode("utf-8", "surrogatepass"))),
        ("&", "&".join(map(_entity, sign))),
    ]
    if sign in _SHORT_ESCAPES:
        forms.append(("\\", rf"\\{{0,{_QUOTES}}}{_SHORT_ESCAPES[sign]}"))
    if sign[0] == "\\":
        return [*forms, ("\\", rf"\\{{{len(sign) - 1},{len(sign) * (_QUOTES + 2)}}}")]
    if sign == " ":
        forms.append(("+", ""))
    return [*forms, ("\\", rf"\\{{0,{_QUOTES}}}{re.escape(sign)}"), (sign, "")]


def _entity(sign: str) -> str:
    name = "apos" if sign == "'" else codepoint2name.get(ord(sign))
    forms = [f"#0*{ord(sign)}", f"#[xX]0*{_cased(f'{ord(sign):x}')}", *([name] if name else [])]
    return f"(?:amp;){{0,3}}(?:{'|'.join(forms)});"


def _any(forms: list[_Form]) -> str:
    if len(forms) == 1:
        return re.escape(forms[0][0]) + forms[0][1]
    return f"(?:{'|'.join(re.escape(first) + more for first, more in forms)})"


def _in_base64(secret: bytes, before: int) -> list[_Form]:
    """The secret behind `before` other bytes. The sign in front, which holds bits of both, is looked at and left."""
    bits = "?" * (8 * before % 6) + "".join(f"{each:08b}" for each in secret)
    bits += "?" * (-len(bits) % 6)
    signs = [bits[at : at + 6] for at in range(0, len(bits), 6)]
    front = signs.pop(0) if before else ""
    rest = "".join(map(_base64_sign, signs[1:])) + "(?:=|%(?:25){0,3}3[dD]){0,2}"
    looked = f"(?<=[{''.join(_fitting(front))}_-].)" if front else ""
    return [(first, more + ("" if more else looked) + rest) for first, more in _BASE64_FORMS[int(signs[0], 2)]]


def _base64_sign(bits: str) -> str:
    if "?" not in bits:
        return _IN_BASE64[int(bits, 2)]
    return f"(?:{'|'.join(_IN_BASE64[_BASE64.index(sign)] for sign in _fitting(bits))})"


def _fitting(bits: str) -> list[str]:
    """The signs of Base64 with these bits, of which `?` is any."""
    pattern = re.compile(bits.replace("?", "."))
    return [sign for at, sign in enumerate(_BASE64) if pattern.fullmatch(f"{at:06b}")]


def _hex(data: bytes) -> str:
    return _cased(data.hex())


def _cased(digits: str) -> str:
    return "".join(digit if digit.isdigit() else f"[{digit}{digit.upper()}]" for digit in digits)


_BASE64_FORMS = [[*_sign(sign), *{"+": [("-", "")], "/": [("_", "")]}.get(sign, [])] for sign in _BASE64]
_IN_BASE64 = [_any(forms) for forms in _BASE64_FORMS]
"""Each sign of Base64, also as addresses have it."""
