"""`serve a2a:URL`."""

from urllib.parse import urlsplit

from gateway.ports.targets import Shorthand, Target, TargetAgent, TargetForm, TargetProblem


def _read(target: Target) -> TargetAgent:
    if not target.rest.startswith(("http://", "https://")):
        suggestion = target.spelt(f"a2a:https://{target.rest or 'agent.example'}")
        raise TargetProblem(f"has no address of an agent; did you mean {suggestion!r}?")
    parts = urlsplit(target.rest)
    path = parts.path.partition("/.well-known/")[0].strip("/")
    return TargetAgent(path.rpartition("/")[2] or parts.hostname or "agent", {"url": target.rest})


SHORTHAND = Shorthand((TargetForm("a2a:URL", "another A2A agent, by the address of it or of its card"),), _read)
