"""Names the release in the SBOM that uv has made of the lock, which knows no version of the project: `make dist`."""

import json
from pathlib import Path

_DIST = Path(__file__).parents[2] / "dist"

if __name__ == "__main__":
    [source] = _DIST.glob("*.tar.gz")
    release = source.name.removesuffix(".tar.gz")
    made = _DIST / "sbom.cdx.json"
    bill = json.loads(made.read_text(encoding="utf-8"))
    project = bill["metadata"]["component"]
    project["version"] = release.split("-")[1]
    project["purl"] = f"pkg:pypi/{project['name']}@{project['version']}"
    made.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    made.rename(_DIST / f"{release}.cdx.json")
