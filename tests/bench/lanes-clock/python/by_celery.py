"""celery's part."""

import os

from celery import Celery

from work import work

URL = os.environ["BENCH_REDIS"]
# Broker and results in Redis; who waits for a result hears of it by publish and subscribe. All as celery has it by default.
app = Celery("by_celery", broker=URL, backend=URL)
job = app.task(work, name="work")
