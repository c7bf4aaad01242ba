"""What settings are made of: the model that all derive from, and the forms of their texts. Adapters use it, too."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from gateway.config_text import matching

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MEDIA_TYPE = re.compile(r"[^/\s;,]+/[^/\s;,]+")

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[
    str,
    AfterValidator(matching(NAME, "must have 1 to 63 of a-z, 0-9 and -, and not begin with -")),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"}),
]
_MediaType = Annotated[
    str,
    AfterValidator(matching(_MEDIA_TYPE, "must be a media type such as text/plain")),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEDIA_TYPE.pattern}$"}),
]
MediaTypes = Annotated[tuple[_MediaType, ...], Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """One mapping of the file: frozen, unknown keys are errors. Adapters derive their own settings from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
