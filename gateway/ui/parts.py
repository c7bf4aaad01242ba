"""The parts of the gateway that pages use."""

from collections.abc import Callable

import msgspec

from gateway.a2a.limits import Limits
from gateway.core.agents import Agents
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.http.auth import Authenticator, KeyHolders
from gateway.http.pipeline import Pipeline
from gateway.ledger.port import Ledger
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs
from gateway.operations.service import Operations
from gateway.ports.observer import Observer
from gateway.recording.recordings import Recordings
from gateway.scheduling.runner import Runner


class Parts(msgspec.Struct, frozen=True):
    """The parts of the gateway that pages use. `auth` knows the keys; without one (None) everybody is the same. `serve_by`
    makes a pipeline whose callers another authenticator tells. `recordings` is None where nothing is recorded."""

    ledger: Ledger
    agents: Agents
    limits: Limits
    clock: Clock
    drain: Drain
    observer: Observer
    public_url: str
    auth: KeyHolders
    asks_for_keys: bool
    serve_by: Callable[[Authenticator], Pipeline]
    operations: Operations
    runner: Runner
    contexts: Contexts
    transfer: ContextTransfer
    push_configs: PushConfigs | None
    recordings: Recordings | None
