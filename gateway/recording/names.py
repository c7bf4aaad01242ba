"""Members and parameters known by their names: those of a secret, and those that only a backend can read. Law: pure."""

import re
from urllib.parse import unquote_plus

_SECRETS = frozenset(
    {"assertion", "authorization", "clientassertion", "cookie", "credential", "credentials", "jwt", "passwd", "pwd"}
    | {"proxyauthorization", "secret", "setcookie", "signature", "streamurl", "token"}
)
"""By their letters and digits, in small ones."""
_SECRET_ENDS = tuple(
    {"accesskey", "apikey", "connectionstring", "passphrase", "password", "privatekey", "secretkey", "subscriptionkey"}
    | {"clientsecret", "apisecret"}
    | {f"{kind}token" for kind in ("access", "api", "auth", "bearer", "id", "refresh", "security", "session")}
)
"""The ends of such names: `db_password`, `x-api-key`. No other token is one: `next_page_token`, `max_tokens`."""
_PARAMETERS = frozenset({"key", "sig"})
_SEALED = frozenset({"encryptedcontent", "encryptedindex", "signature", "thoughtsignature"})

_BRACKETS = re.compile(r"[\[\]]")
_NO_LETTERS = re.compile(r"[\W_]+")


def _shortest(names: frozenset[str]) -> list[str]:
    """Those in which no other stands."""
    return sorted(name for name in names if not any(other in name for other in names - {name}))


_WORDS = re.compile("|".join(_shortest(_SECRETS.union(_SECRET_ENDS) | _PARAMETERS | _SEALED | {"redactedthinking"})))


def may_name_secret(text: str) -> bool:
    """Whether anything in this text may be masked by its name. Law: of what is masked, nothing is passed over; a name in
    escapes is not looked for, so each text with an escape counts."""
    if "\\" in text or "%" in text or ("@" in text and "://" in text):
        return True
    return _WORDS.search(_NO_LETTERS.sub("", text).lower()) is not None


def names_secret(name: str) -> bool:
    plain = plain_name(name)
    return plain in _SECRETS or plain.endswith(_SECRET_ENDS)


def names_secret_parameter(name: str) -> bool:
    """As addresses and forms have it: in percent encoding, or as `user[password]`."""
    *_, last = [part for part in _BRACKETS.split(unquote_plus(name)) if part and not part.isdigit()] or [""]
    return plain_name(last) in _PARAMETERS or names_secret(last)


def names_sealed(name: str) -> bool:
    """Whether only the backend can read the text of this member."""
    return plain_name(name) in _SEALED


def plain_name(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
