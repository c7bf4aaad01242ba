"""The settings of a ledger on PostgreSQL."""

import subprocess
import sys

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr, ValidationError

from gateway.config.plugins import Registry
from storage.postgres.settings import PostgresSettings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://localhost",
        "postgresql://ada:secret@localhost:x/ledger?nothing=1",
        "postgresql://[/x",
        "postgresql:/ada:secret@localhost/ledger",
        "postgresql:ada:secret@localhost/ledger",
        "postgres:///ada:secret@localhost/ledger",
        "postgresql://ada:secret@localhost:notaport/ledger",
        "postgresql://ada:secret@one:5432,two:65536/ledger",
        "postgresql://ada:secret@localhost:0/ledger",
    ],
)
def test_a_url_that_names_no_database_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PostgresSettings(url=url)
    [problem] = caught.value.errors(include_url=False, include_input=False)
    assert "postgresql://USER@HOST:5432/DATABASE" in problem["msg"]
    assert "secret" not in problem["msg"]


def test_a_parameter_that_libpq_does_not_know_is_named() -> None:
    with pytest.raises(ValidationError, match="it has the parameter 'foo', which libpq does not know"):
        PostgresSettings(url="postgresql://ada:secret@localhost/ledger?sslmode=require&foo=bar")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:a/b?secret=1@localhost/ledger",
        "postgresql://ada:a/b?secret&c=1@localhost/ledger",
        "postgresql://ada@localhost/ledger?password=a&secret=1",
        "host=localhost dbname=ledger password=a? secret=1",
    ],
)
def test_what_may_be_a_part_of_a_password_is_not_named(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PostgresSettings(url=url)
    [problem] = caught.value.errors(include_url=False, include_input=False)
    assert "secret" not in problem["msg"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///ledger",
        "postgresql://one,two/ledger",
        "postgresql://one:5432,two:65535/ledger",
        "postgresql://ada@one/ada%40work",
        "postgresql://%2Frun%2Fpostgresql/ledger",
    ],
)
def test_a_url_that_names_a_database_is_taken(url: str) -> None:
    assert PostgresSettings(url=url).url == url


def test_all_that_the_settings_say_is_in_the_connection_string() -> None:
    settings = PostgresSettings(
        url="postgresql://ada@one,two/ledger?target_session_attrs=read-write",
        password=SecretStr("a word"),
        tls="verify-full",
        ca="/etc/ca.pem",
        database_schema="own",
        lock_timeout="1s",
    )
    told = settings.conninfo(options=True)
    parts = (
        "host=one,two",
        "dbname=ledger",
        "target_session_attrs=read-write",
        "password='a word'",
        "sslmode=verify-full",
        "sslrootcert=/etc/ca.pem",
        "application_name=a2a-gateway",
        "search_path=own",
        "lock_timeout=1000",
    )
    for part in parts:
        assert part in told
    assert "options" not in settings.conninfo(options=False)


def test_settings_of_the_server_in_the_url_are_kept() -> None:
    settings = PostgresSettings(url="postgresql://ada@one/ledger?options=-c%20synchronous_commit%3Dremote_apply")
    told = conninfo_to_dict(settings.conninfo(options=True))["options"]
    assert str(told).startswith("-c synchronous_commit=remote_apply -c search_path=public ")
    assert conninfo_to_dict(settings.conninfo(options=False))["options"] == "-c synchronous_commit=remote_apply"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_the_kind_is_found_by_both_schemes(scheme: str) -> None:
    factory = Registry().ledger(f"{scheme}://localhost/ledger")
    assert factory.settings is PostgresSettings
    assert factory.scales_out


def test_looking_the_kind_up_imports_no_psycopg() -> None:
    program = "import sys, storage.postgres.factory; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_psycopg_the_url_is_refused_with_what_to_install() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from storage.postgres.settings import PostgresSettings
try:
    PostgresSettings(url="postgresql://localhost/ledger")
except ValueError as error:
    print("a2a-gateway[postgres]" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
