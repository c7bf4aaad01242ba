"""What `make dist` makes: the packages and nothing else, and beside them what they are made of."""

import json
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.dist.interpreters import PROJECT, ROOT

pytestmark = pytest.mark.skipif("A2A_GATEWAY_DIST" not in os.environ, reason="`make dist` builds what is tried here")

_PACKAGES = ("a2a_gateway.py", "gateway", "adapters", "storage")


def in_git(*paths: str) -> set[str]:
    listing = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, check=True, text=True)
    return set(listing.stdout.splitlines())


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == in_git(*_PACKAGES)
    assert {f"{package}/py.typed" for package in _PACKAGES[1:]} <= names


def test_the_wheel_brings_its_licence_its_command_and_its_plug_ins(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        entry_points = archive.read(about["entry_points.txt"]).decode()
    assert about.keys() == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    groups = ["console_scripts", *PROJECT["entry-points"]]
    assert sorted(re.findall(r"^\[(.+)\]$", entry_points, re.MULTILINE)) == sorted(groups)


def test_the_source_distribution_holds_what_the_wheel_is_built_from_and_what_changes(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    about = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", "PKG-INFO"}
    assert names == in_git(*_PACKAGES) | about


def test_the_bill_of_materials_names_every_package_of_the_lock_that_may_be_installed(source: Path) -> None:
    release = source.name.removesuffix(".tar.gz")
    bill = json.loads((source.parent / f"{release}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == (PROJECT["name"], release.split("-")[1])
    named = {component["name"]: component["version"] for component in bill["components"]}
    locked = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    wanted, open_ones = set[str](), [PROJECT["name"]]
    while open_ones:
        package = locked[open_ones.pop()]
        extras = [each for extra in package.get("optional-dependencies", {}).values() for each in extra]
        needed = {each["name"] for each in [*package.get("dependencies", ()), *extras]} - wanted
        wanted |= needed
        open_ones += needed
    assert named.items() <= {(name, package.get("version")) for name, package in locked.items()}
    direct = {re.split(r"[\[<>=;~! ]", one)[0] for one in PROJECT["dependencies"]}
    assert direct <= named.keys() <= wanted
    assert all(component["purl"].startswith("pkg:pypi/") for component in bill["components"])
