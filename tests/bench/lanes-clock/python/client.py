"""Gives jobs and waits for their results, the way rq or celery recommends: `client.py rq QUEUE`, `client.py celery`.

Reads numbers from standard input, does as many jobs one after the other, and prints how long each took, in seconds.
"""

import os
import sys
import time


def rq(name):
    from redis import Redis
    from rq import Queue

    from work import work

    queue = Queue(name, connection=Redis.from_url(os.environ["BENCH_REDIS"]))

    def lap():
        # It waits in the server for the result instead of asking again and again.
        result = queue.enqueue(work).latest_result(timeout=60)
        assert result is not None and result.return_value == 0, result

    return lap


def celery():
    from by_celery import job

    def lap():
        assert job.delay().get(timeout=60) == 0

    return lap


lap = {"rq": rq, "celery": celery}[sys.argv[1]](*sys.argv[2:])
for line in sys.stdin:
    for _ in range(int(line)):
        start = time.perf_counter()
        lap()
        print(time.perf_counter() - start)
    sys.stdout.flush()
