"""Many ranks as one job: a folder of containers, and the ranks' summaries merged."""

from pathlib import Path

JOB = "job.json"


def is_job(path: Path) -> bool:
    """Whether a path is a folder with a job's job.json."""
    return (path / JOB).is_file()
