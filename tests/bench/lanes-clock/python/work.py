"""The job: the same for everybody."""

import subprocess


def work():
    return subprocess.run(["/bin/true"]).returncode
