"""Many ranks as one job: a folder of containers, and the ranks' summaries merged."""

import os
from pathlib import Path

JOB = "job.json"


def is_job(path: Path) -> bool:
    """Whether a path is a folder with a job's job.json."""
    return os.path.isfile(path / JOB)  # false, too, for a name that is too long
