"""From the settings of `auth:` to what an HttpClient takes."""

from adapters.http.credentials.oauth2 import oauth2_token
from adapters.http.credentials.settings import ApiKeyAuth, AwsAuth, EntraAuth, OAuth2Auth
from adapters.http.credentials.tokens import BearerToken
from adapters.http.extras import needing
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.http.signing import Signing
from gateway.foundation.route import DIRECT, Route
from gateway.ports.wire import offered

AnyAuth = ApiKeyAuth | OAuth2Auth | EntraAuth | AwsAuth | None


def headers_of(auth: AnyAuth) -> dict[str, str]:
    """The headers that are the same for every request."""
    return auth.headers if isinstance(auth, ApiKeyAuth) else {}


def signing_of(auth: AnyAuth, failures: Failures, timeouts: Timeouts, route: Route = DIRECT) -> Signing | None:
    """What makes the headers of each request; None where all have the same. `failures` masks the secrets of the settings
    already, and is told of those that come later. Requests for tokens keep the `timeouts`, and go by the `route` without its
    headers, which are for the service.

    Raises: ValueError that says what is missing: a library, a region, a file.
    """
    # What a client of tokens sends and gets is nothing but secrets.
    with offered(None):
        return _signing_of(auth, failures, timeouts, Route(route.ca, route.proxy))


def _signing_of(auth: AnyAuth, failures: Failures, timeouts: Timeouts, elsewhere: Route) -> Signing | None:
    match auth:
        case OAuth2Auth():
            return BearerToken(oauth2_token(auth, failures, timeouts, elsewhere), failures)
        case EntraAuth():
            entra = needing(
                f"credentials of type {auth.type}", "azure-identity", "azure", "adapters.http.credentials.entra"
            )
            return BearerToken(entra.entra_token(auth, failures, timeouts, elsewhere), failures)
        case AwsAuth():
            aws = needing(f"credentials of type {auth.type}", "botocore", "aws", "adapters.http.credentials.aws")
            signing: Signing = aws.AwsSigning(auth, failures)
            return signing
    return None
