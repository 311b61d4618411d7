"""Small helpers for tests of the log."""

from flotilla_broker.log import Log
from flotilla_broker.log.jobs import Job


def run_job(log: Log) -> Job | None:
    """Run one job of the background, if there is one."""
    job = log.next_job()
    if job is not None:
        job.run()
        log.end_job(job)
    return job


def idle(log: Log) -> list[Job]:
    """Do everything that a broker without load does; return the jobs that were run."""
    jobs = []
    while True:
        job, flushed = run_job(log), log.flush()  # a job may queue a frame
        if job is not None:
            jobs.append(job)
        elif flushed is None:
            return jobs
