"""Stands in for ncu, which needs a GPU: takes the options that ncu 2025.3 has, runs the program, writes a real table.

FAKE_NCU_LOG gets the words of each call, FAKE_NCU_TABLE is the table, FAKE_NCU_SAYS what goes into ncu's log and
FAKE_NCU_MODE "no report" leaves the report out, as ncu does if no kernel was measured.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

MEASURED = (
    '==PROF== Connected to process 7 (/usr/bin/python3.12)\n==PROF== Profiling "gemm" - 0: 0%....100% - 3 passes\n'
)
AVAILABLE = "gpu__time_duration dram__bytes_op_read dram__bytes_op_write smsp__inst_executed sm__pipe_tc_cycles_active"


def main() -> int:
    with open(os.environ["FAKE_NCU_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(sys.argv[1:]) + "\n")
    options = _parser().parse_args()
    if options.query_metrics:
        sys.stdout.write("Device NVIDIA X (X100)\n" + "".join(f"{name}   byte   # of\n" for name in AVAILABLE.split()))
        return 0
    if options.imported:
        assert Path(options.imported).read_bytes() == b"NVR\0report"
        shutil.copyfile(os.environ["FAKE_NCU_TABLE"], options.log_file)
        return 0
    environ = {**os.environ, "UNDER_NCU": "1"}
    code = subprocess.run(options.program, check=False, env=environ).returncode
    Path(options.log_file).write_text(os.environ.get("FAKE_NCU_SAYS", MEASURED), encoding="utf-8")
    if os.environ.get("FAKE_NCU_MODE") != "no report":
        Path(f"{options.export}.ncu-rep").write_bytes(b"NVR\0report")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--query-metrics", action="store_true")
    parser.add_argument("--import", dest="imported")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--page", choices=("raw", "details", "source", "session"))
    parser.add_argument("--print-units", choices=("auto", "base"))
    parser.add_argument("--target-processes", choices=("all", "application-only"))
    parser.add_argument("--profile-from-start", choices=("on", "off"))
    parser.add_argument("--nvtx", action="store_true")
    parser.add_argument("--replay-mode", choices=("kernel", "application", "range", "app-range"))
    parser.add_argument("--clock-control", choices=("base", "none"))
    parser.add_argument("--cache-control", choices=("all", "none"))
    parser.add_argument("--launch-count", type=int)
    parser.add_argument("--metrics")
    parser.add_argument("--log-file")
    parser.add_argument("--export")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
