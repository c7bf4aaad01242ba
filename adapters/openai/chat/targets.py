"""`serve ollama:MODEL` and `serve chat:URL#MODEL`."""

from adapters.openai.targets import named_model
from gateway.ports.targets import Shorthand, Target, TargetAgent, TargetForm, TargetProblem

_OLLAMA = "http://localhost:11434/v1"


def _read(target: Target) -> TargetAgent:
    model, base_url = (named_model(target, "llama3.3"), _OLLAMA) if target.kind == "ollama" else _at_server(target)
    return TargetAgent(model, {"model": model, "base_url": base_url})


def _at_server(target: Target) -> tuple[str, str]:
    url, _, model = target.rest.partition("#")
    if "://" not in url:
        suggestion = target.spelt(f"chat:http://{url or 'localhost:8000/v1'}#{model or 'MODEL'}")
        raise TargetProblem(f"has no address of a server; did you mean {suggestion!r}?")
    if not model:
        raise TargetProblem(f"names no model; write it behind the address: {target.spelt(f'chat:{url}#MODEL')!r}")
    return model, url


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


SHORTHAND = Shorthand(
    (
        TargetForm("ollama:MODEL", "Ollama on this machine"),
        TargetForm("chat:URL#MODEL", "any Chat Completions server: vLLM, LM Studio, llama.cpp", _is_address),
    ),
    _read,
)
