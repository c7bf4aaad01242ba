"""Signatures of Amazon Web Services (SigV4), by botocore, with the keys that its own chain finds: environment, profiles, roles,
metadata of the host. Law: what waits for the network or a file runs in a thread.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.session import Session

from adapters.http.credentials.settings import AwsAuth
from adapters.http.failures import Failures
from adapters.http.signing import Credential
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass

# At `debug` it writes what it signs, and answers that hold keys.
logging.getLogger("botocore").setLevel(logging.WARNING)

_CHAIN = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or give the host a role"


class AwsSigning(Credential):
    def __init__(self, auth: AwsAuth, failures: Failures) -> None:
        """Raises: ValueError without a region, or for a profile that is not there."""
        self._failures = failures
        self._service = auth.service
        self._session = Session(profile=auth.profile)
        try:
            self._session.get_scoped_config()
            region = auth.region or self._session.get_config_variable("region")
        except BotoCoreError as error:
            raise ValueError(f"credentials of type aws: {error}") from error
        if not region:
            raise ValueError("credentials of type aws need a region: in `region`, AWS_DEFAULT_REGION or the profile")
        self._region: str = region
        self._credentials: Any = None
        self._finding = asyncio.Lock()

    async def __call__(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        keys = await self._keys()
        request = AWSRequest(method, url, data=body)
        SigV4Auth(keys, self._service, self._region).add_auth(request)
        return dict(request.headers.items())

    async def _keys(self) -> Any:
        """The keys of today. Raises: AdapterError."""
        try:
            found = await self._found()
            # Those that expire renew themselves, and wait for the network then.
            renews = isinstance(found, RefreshableCredentials) and found.refresh_needed()
            keys = await asyncio.to_thread(found.get_frozen_credentials) if renews else found.get_frozen_credentials()
        except (BotoCoreError, ClientError, RuntimeError) as error:
            failed = self._failed(error)
            drop_tracebacks(error)
        else:
            self._failures.hide(keys.secret_key, *([keys.token] if keys.token else ()))
            return keys
        raise failed

    async def _found(self) -> Any:
        """What the chain has found, once for all requests."""
        if self._credentials is None:
            async with self._finding:
                if self._credentials is None:
                    self._credentials = await asyncio.to_thread(self._session.get_credentials)
        if self._credentials is None:
            raise NoCredentialsError
        return self._credentials

    def _failed(self, error: Exception) -> AdapterError:
        unheard = isinstance(error, HTTPClientError | CredentialRetrievalError)
        kind = ErrorClass.UNREACHABLE if unheard else ErrorClass.UNAUTHORISED
        hint = f"; {_CHAIN}" if isinstance(error, NoCredentialsError) else ""
        return self._failures.error(kind, f"no AWS keys: {error}{hint}")
