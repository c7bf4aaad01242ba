"""The workflow that publishes: it follows its schema, does nothing that nobody has switched on, and keeps no secret."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ledgers.recording import version

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "workflows" / "release.yml"
JOBS: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]


def test_the_workflow_follows_its_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("job", "variable"), [("package", "PUBLISH_PACKAGE == 'true'"), ("image", "IMAGE != ''")])
def test_nothing_is_published_before_a_maintainer_has_said_so(job: str, variable: str) -> None:
    assert JOBS[job]["if"] == f"github.ref_type == 'tag' && vars.{variable}"
    assert JOBS[job]["needs"] == "build"


def test_no_job_has_a_secret_and_only_those_that_publish_may_write() -> None:
    assert "secrets." not in FILE.read_text()
    writes = {
        (job, right) for job, about in JOBS.items() for right, level in about["permissions"].items() if level == "write"
    }
    assert writes == {("package", "id-token"), ("image", "packages"), ("release", "contents")}


def test_it_builds_for_every_python_that_the_package_names() -> None:
    [setup] = [step for step in JOBS["build"]["steps"] if step.get("uses", "").startswith("actions/setup-python@")]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert setup["with"]["python-version"].split() == named


def test_the_image_is_built_from_all_that_the_wheel_is() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert let_in >= {*build["wheel"]["only-include"], "pyproject.toml", "uv.lock", "README.md", "LICENSE"}


@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-replicas"])
def test_kubernetes_runs_the_image_of_the_version_that_the_changelog_begins_with(folder: str) -> None:
    kustomization = yaml.safe_load((ROOT / "deploy" / folder / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in kustomization["images"]] == [version()]


def test_every_action_is_named_by_its_commit() -> None:
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert [one for one in used if re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) is None] == []
