"""The settings of agent cards. Law: as in `gateway.config.gateway`."""

from typing import Annotated

from pydantic import Field, JsonValue

from gateway.config.settings import MediaTypes, Name, Settings, Text, WebUrl


class ProviderConfig(Settings):
    """Who offers the agents."""

    organization: Text = Field(description="Name of the organisation.")
    url: WebUrl = Field(description="Its web page.")


class CardsConfig(Settings):
    """What all cards say."""

    provider: ProviderConfig | None = Field(None, description="Who offers the agents.")


class SkillConfig(Settings):
    """One thing that an agent can do, for its card."""

    id: Text = Field(description="Id of the skill, unique in its card.")
    name: Text = Field(description="Name for people.")
    description: Text = Field(description="What the skill does.")
    tags: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(description="Keywords, at least one.")
    examples: tuple[Text, ...] = Field((), description="Prompts that show what to ask.")
    input_modes: MediaTypes | None = Field(
        None, description="Media types it takes, where they differ from the agent's."
    )
    output_modes: MediaTypes | None = Field(
        None, description="Media types it gives, where they differ from the agent's."
    )


class ExtensionConfig(Settings):
    """An A2A extension that the card announces."""

    uri: Text = Field(description="URI of the extension.")
    description: Text | None = Field(None, description="How this agent uses it.")
    required: bool = Field(False, description="Refuse clients that do not name it.")
    params: dict[str, JsonValue] | None = Field(None, description="Parameters, as the extension defines them.")


class CardConfig(Settings):
    """What the agent's card says."""

    name: Text | None = Field(None, description="Name for people; the agent's name in this file when not given.")
    description: Text | None = Field(None, description="What the agent is for.")
    version: Text = Field("1.0.0", description="Version of the agent.")
    documentation_url: WebUrl | None = Field(None, description="Where its documentation is.")
    icon_url: WebUrl | None = Field(None, description="Where its icon is.")
    skills: tuple[SkillConfig, ...] = Field((), description="What the agent can do.")
    input_modes: MediaTypes | None = Field(None, description="Media types it takes; those of its type when not given.")
    output_modes: MediaTypes | None = Field(None, description="Media types it gives; those of its type when not given.")
    extensions: tuple[ExtensionConfig, ...] = Field((), description="A2A extensions that the card announces.")
    tenant: Name | None = Field(None, description="Tenant under which this agent answers.")
