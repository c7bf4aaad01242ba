"""Push notifications put together from their settings. Law: modules that are slow to import come with the first delivery."""

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from gateway.config.gateway import PushConfig
from gateway.foundation.addresses import TargetRules
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.ledger.port import Ledger
from gateway.operations.push_configs import PushConfigs
from gateway.push.delivery import PushLimits
from gateway.push.dispatcher import Dispatcher
from gateway.push.secrets import SecretBox
from gateway.push.webhook import WebhookRequests

if TYPE_CHECKING:
    from gateway.push.sender import Sender


@dataclass(frozen=True, slots=True)
class Push:
    """`jwks`: the public keys of signed notifications; None where they are not signed."""

    configs: PushConfigs
    dispatcher: Dispatcher
    resolver: Resolver
    jwks: bytes | None

    async def run(self) -> None:
        """Never returns."""
        try:
            await self.dispatcher.run()
        finally:
            self.resolver.close()


async def build_push(config: PushConfig, public_url: str, ledger: Ledger, clock: Clock) -> Push | None:
    """None where push notifications are off. Raises: LedgerUnavailable."""
    if not config.enabled:
        return None
    key = config.encryption_key
    material = key.get_secret_value().encode() if key is not None else await ledger.secret("push")
    rules = TargetRules(config.allow_http, config.ports, tuple(map(ip_network, config.allow_private_networks)))
    resolver = Resolver(rules.permit)
    box = SecretBox(material)
    signer = None
    if config.signing:
        from gateway.push.signatures import Signer

        signer = Signer(material, public_url)

    def open_sender() -> "Sender":
        from gateway.push.sender import Sender

        return Sender(rules, resolver, config.timeout, clock)

    limits = PushLimits(config.timeout, config.max_attempts)
    dispatcher = Dispatcher(ledger, open_sender, WebhookRequests(box, signer), clock, limits)
    configs = PushConfigs(ledger, rules, resolver, box, clock, dispatcher.wake)
    return Push(configs, dispatcher, resolver, None if signer is None else signer.jwks)
