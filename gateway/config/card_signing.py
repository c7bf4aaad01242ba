"""The keys that sign cards. Law: as in `gateway.config.gateway`; what reads keys is imported with the first key."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.config.settings import Settings, expected


def _readable_key(value: SecretStr) -> SecretStr:
    from gateway.foundation.signing_keys import read_key

    try:
        read_key(value.get_secret_value())
    except ValueError as error:
        raise expected(str(error)) from error
    return value


class CardSigningConfig(Settings):
    """Signatures by which a client knows that a card is the gateway's, and unchanged."""

    keys: Annotated[tuple[Annotated[SecretStr, AfterValidator(_readable_key)], ...], Field(min_length=1)] = Field(
        description="Keys in PEM, as `${file:card-key.pem}`: of the curve P-256 or P-384, or of RSA. The first signs, so it is "
        "a private one; all of them, private or public, stand at `/.well-known/jwks.json`, so that what another has signed, "
        "or is going to sign, verifies."
    )

    @model_validator(mode="after")
    def _can_sign(self) -> Self:
        from gateway.foundation.signing_keys import read_key

        if not read_key(self.keys[0].get_secret_value()).is_private:
            raise ValueError("keys[0] signs the cards, but it is a public key: put a private key before it")
        return self
