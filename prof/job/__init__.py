"""Many ranks as one job: a folder of containers, and the ranks' summaries merged."""
