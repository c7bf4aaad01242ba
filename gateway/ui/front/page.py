"""The page in HTML, by Jinja2. Law: imported when the page is made, and by nobody else."""

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.core.agents import Agent
from gateway.ui.front.agents import shown

_STYLE = "front.css"


class Page(msgspec.Struct, frozen=True):
    """`policy` is its Content-Security-Policy, which admits the style that the page holds, and nothing else."""

    body: bytes
    policy: bytes


def page(agents: Iterable[Agent], public_url: str, cards: str, openapi: str) -> Page:
    """`public_url` is the gateway's; `cards` and `openapi` are the addresses of the list of cards and of the description."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    style = hashlib.sha256(environment.get_template(_STYLE).render().encode()).digest()
    body = environment.get_template("front.html").render(
        agents=[shown(agent, public_url) for agent in agents], cards=cards, openapi=openapi, style=_STYLE
    )
    return Page(body.encode(), _policy(style))


def _policy(style: bytes) -> bytes:
    return (
        b"default-src 'none'; style-src 'sha256-%b'; img-src data:; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'" % b64encode(style)
    )
