"""Which hosts are this machine alone. Law: a name that is no address is foreign, but for `localhost`."""

import ipaddress


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
