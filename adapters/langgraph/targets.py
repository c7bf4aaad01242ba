"""`serve langgraph:URL#GRAPH`."""

from gateway.ports.targets import EnvironmentValue, Shorthand, Target, TargetAgent, TargetForm, TargetProblem

_KEYS = ("LANGGRAPH_API_KEY", "LANGSMITH_API_KEY")
"""The second is that of LangChain's own cloud, which its servers take."""
_EXAMPLE = "http://localhost:2024"


def _read(target: Target) -> TargetAgent:
    url, _, graph = target.rest.partition("#")
    if "://" not in url:
        suggestion = target.spelt(f"langgraph:{_EXAMPLE}#{graph or 'GRAPH'}")
        raise TargetProblem(f"has no address of a server; did you mean {suggestion!r}?")
    if not graph:
        suggestion = target.spelt(f"langgraph:{url}#GRAPH")
        raise TargetProblem(f"names no graph; write it behind the address: {suggestion!r}")
    key = next((name for name in _KEYS if target.env.get(name)), None)
    credential = {} if key is None else {"api_key": EnvironmentValue(key)}
    return TargetAgent(graph, {"url": url, "assistant": graph, **credential})


SHORTHAND = Shorthand(
    (TargetForm("langgraph:URL#GRAPH", f"a graph on a LangGraph Agent Server; a key is in {' or '.join(_KEYS)}"),),
    _read,
)
