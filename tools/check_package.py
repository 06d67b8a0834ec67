"""Install the wheel where nothing else is, use it, and write down what it brings: make package.

    python tools/check_package.py dist build/package

dist/ has one sdist, and one wheel that `python -m build` made of it. In a new environment without torch, with an
empty home, the wheel's commands read captures of tests/golden. Then cyclonedx-py lists the environment's packages, and
dist/ gets this bill of materials, with the parts by others inside of the wheel.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
VENDOR = "pyprof/prof/report/templates/vendor"
LICENCES = ("LICENSE", "NOTICE", "echarts.LICENSE", "echarts.LICENSE-d3", "echarts.NOTICE", "zrender.LICENSE")
BUNDLED = [  # name, version, licence: what echarts.min.js consists of (prof/report/templates/vendor/README.md)
    ("echarts", "6.1.0", "Apache-2.0"),
    ("zrender", "6.1.0", "BSD-3-Clause"),
    ("tslib", "2.3.0", "0BSD"),
]


def main(argv: list[str]) -> int:
    dist, folder = Path(argv[0]).resolve(), Path(argv[1]).resolve()
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    check_contents(sdist, wheel)
    home = folder / "home"
    home.mkdir(parents=True)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    run([sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", str(wheel)], folder, os.environ)
    use(python.parent, home)
    materials = bill(python, dist / f"{wheel.name.split('-py3')[0]}.cdx.json", wheel)
    print(f"{sdist.name}, {wheel.name}: installed and used; {materials} packages and parts are listed")
    return 0


def check_contents(sdist: Path, wheel: Path) -> None:
    """The licences are in both, the tests in neither's packages; the wheel has no other top-level names."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pyprof"}, tops
    with tarfile.open(sdist) as packed:
        files = [name.partition("/")[2] for name in packed.getnames()]
    for licence in LICENCES:
        assert any(".dist-info/licenses/" in name and name.endswith(f"/{licence}") for name in names), licence
        assert any(name == licence or name.endswith(f"/{licence}") for name in files), licence
    assert f"{VENDOR}/zrender.LICENSE" in names


def use(commands: Path, home: Path) -> None:
    """The README's commands on golden captures, from an empty folder, with no other Python package in sight."""
    environment = {"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}
    version = json.loads(run([str(commands / "pyprof"), "schema", "--json"], home, environment))["pyprof"]
    assert run([str(commands / "pyprof"), "--version"], home, environment).split() == ["pyprof", version]
    nsys, kineto = GOLDEN / "h200_lenet_init.sqlite.gz", GOLDEN / "h200_diff_eager.json.gz"
    run([str(commands / "pyprof"), "parse", str(nsys), "-o", "net.dict"], home, environment)
    run([str(commands / "pyprof"), "parse", str(kineto), "-o", "net.parquet"], home, environment)
    lines = run([str(commands / "prof.py"), "--csv", "net.dict"], home, environment).splitlines()
    assert len(lines) == 1 + 59, len(lines)  # the header; 54 kernels and 5 memsets (tests/golden/README.md)
    summary = run([str(commands / "pyprof"), "prof", "--summary", "net.parquet"], home, environment)
    assert summary.startswith("815 kernels and 145 memsets on one NVIDIA H200."), summary[:100]  # docs/tutorial.md
    run([str(commands / "pyprof"), "report", str(kineto), "-o", "net.html"], home, environment)
    assert "Baidu Inc." in (home / "net.html").read_text(encoding="utf-8")
    imported = "import pyprof; print(len(pyprof.load('net.parquet').kernels))"
    assert run([str(commands / "python"), "-c", imported], home, environment).strip() == "960"


def bill(python: Path, out: Path, wheel: Path) -> int:
    """Write the CycloneDX document; return the number of its components."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", str(python), "--output-format", "JSON"]
    found = json.loads(run([*command, "--output-reproducible"], python.parent, os.environ))
    library = zipfile.ZipFile(wheel).read(f"{VENDOR}/echarts.min.js")
    for name, version, licence in BUNDLED:
        purl = f"pkg:npm/{name}@{version}"
        part = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        part["licenses"] = [{"license": {"id": licence}}]
        if name == "echarts":
            part["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(library).hexdigest()}]
        found["components"].append(part)
    names = {component["name"].lower() for component in found["components"]}
    missing = {"torch-pyprof", "numpy", "pyarrow", "msgspec", "orjson", "jinja2", "pandas"} - names
    assert not missing, missing
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return len(found["components"])


def run(command: list[str], folder: Path, environment: object) -> str:
    """What a command prints; its error ends this script."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
