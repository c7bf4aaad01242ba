"""Push notifications put together from their settings. Law: what is slow to import comes with the first delivery."""

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from gateway.config.gateway import PushConfig
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.foundation.url_policy import TargetRules
from gateway.ledger.port import Ledger
from gateway.operations.push_configs import PushConfigs
from gateway.push.delivery import PushLimits
from gateway.push.dispatcher import Dispatcher
from gateway.push.secrets import Seal
from gateway.push.webhook import WebhookRequests

if TYPE_CHECKING:
    from gateway.push.sender import Sender


@dataclass(frozen=True, slots=True)
class Push:
    """`jwks` are the public keys of what is signed, None where nothing is."""

    pushes: PushConfigs
    notifier: Dispatcher
    resolver: Resolver
    jwks: bytes | None

    async def run(self) -> None:
        """Never returns."""
        try:
            await self.notifier.run()
        finally:
            self.resolver.close()


async def push_of(config: PushConfig, public_url: str, ledger: Ledger, clock: Clock) -> Push | None:
    """None where there is none. Raises: LedgerUnavailable."""
    if not config.enabled:
        return None
    key = config.encryption_key
    material = key.get_secret_value().encode() if key is not None else await ledger.secret("push")
    rules = TargetRules(config.allow_http, config.ports, tuple(map(ip_network, config.allow_private_networks)))
    resolver = Resolver(rules.permit)
    seal = Seal(material)
    signer = None
    if config.signing:
        from gateway.push.signatures import Signer

        signer = Signer(material, public_url)

    def open_sender() -> "Sender":
        from gateway.push.sender import Sender

        return Sender(rules, resolver, config.timeout, clock)

    limits = PushLimits(config.timeout, config.max_attempts)
    notifier = Dispatcher(ledger, open_sender, WebhookRequests(seal, signer), clock, limits)
    pushes = PushConfigs(ledger, rules, resolver, seal, clock, notifier.wake)
    return Push(pushes, notifier, resolver, None if signer is None else signer.jwks)
