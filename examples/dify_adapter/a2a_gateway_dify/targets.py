"""`serve dify:URL#USER`."""

from gateway.ports.targets import (
    EnvironmentValue,
    Shorthand,
    Target,
    TargetAgent,
    TargetForm,
    TargetProblem,
    TargetSetting,
)


def from_target(target: Target) -> TargetAgent:
    url, _, user = target.rest.partition("#")
    if "DIFY_API_KEY" not in target.env:
        raise TargetProblem("needs the key of the app; set DIFY_API_KEY", lacking=True)
    settings: dict[str, TargetSetting] = {"api_key": EnvironmentValue("DIFY_API_KEY"), "user": user or "a2a-gateway"}
    if url:
        settings["base_url"] = url
    return TargetAgent("dify", settings)


SHORTHAND = Shorthand(
    (TargetForm("dify:URL#USER", "a chat app of Dify; the key is in DIFY_API_KEY", lambda text: "dify" in text),),
    from_target,
)
