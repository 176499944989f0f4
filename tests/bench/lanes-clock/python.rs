//! Others who do the same job: a worker and a client of theirs, both Python.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::Plan;
use crate::rig::{Process, Rig, with_us};

/// How one of them is started.
struct Way {
    key: &'static str,
    name: &'static str,
    worker: &'static str,
    client: &'static str,
}

/// rq as its documentation wants it in production (a process forked for each job), and the way that it advises against but that
/// is its fastest; celery with its default pool, two processes, and without what only serves several workers.
const WAYS: [Way; 3] = [
    Way {
        key: "rq",
        name: "rq, a fork for each job (default)",
        worker: "-m rq.cli worker --quiet --disable-job-desc-logging forked",
        client: "rq forked",
    },
    Way {
        key: "rq-simple",
        name: "rq, SimpleWorker",
        worker: "-m rq.cli worker --quiet --disable-job-desc-logging --worker-class rq.SimpleWorker simple",
        client: "rq simple",
    },
    Way {
        key: "celery",
        name: "celery, prefork",
        worker: "-m celery -A by_celery worker --pool prefork --concurrency 2 --without-gossip --without-mingle \
                 --without-heartbeat --loglevel ERROR",
        client: "celery",
    },
];

/// One of them, running.
pub(crate) struct Other {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    pub(crate) worker: Process,
    _client: Process,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    /// All of them, warm. None without a Python.
    pub(crate) fn all(plan: &Plan, rig: &Rig) -> Vec<Self> {
        let Some(python) = &plan.python else { return Vec::new() };
        let command = |words: &[&str]| {
            let mut command = with_us(python, &[]);
            command.args(words).current_dir(rig.dir.path()).env("BENCH_REDIS", rig.url());
            command.env("RQ_REDIS_URL", rig.url()).env("PYTHONPATH", &plan.python_jobs);
            // Nothing into the sources; and celery wants to be told that it may run as root.
            command.env("PYTHONDONTWRITEBYTECODE", "1").env("C_FORCE_ROOT", "1");
            command
        };
        let start = |way: &Way| {
            let log = rig.log(way.name);
            let words: Vec<_> = way.worker.split_whitespace().collect();
            let mut worker = command(&words);
            worker.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            let worker = Process::spawn(&mut worker);
            let program = plan.python_jobs.join("client.py");
            let words: Vec<_> =
                [program.to_str().unwrap()].into_iter().chain(way.client.split(' ')).collect();
            let mut client: Command = command(&words);
            let mut client = Process::spawn(client.stdin(Stdio::piped()).stdout(Stdio::piped()));
            let ask = client.child().stdin.take().unwrap();
            let answers = BufReader::new(client.child().stdout.take().unwrap());
            Self { key: way.key, name: way.name, worker, _client: client, ask, answers }
        };
        let mut all: Vec<Self> = WAYS.iter().map(start).collect();
        for other in &mut all {
            other.laps(10);
        }
        all
    }

    /// From giving a job to its result, so many times one after the other, by its own client's clock.
    pub(crate) fn laps(&mut self, n: usize) -> Vec<Duration> {
        writeln!(self.ask, "{n}").unwrap();
        let lines = self.answers.by_ref().lines().take(n);
        let times: Vec<_> =
            lines.map(|line| Duration::from_secs_f64(line.unwrap().parse().unwrap())).collect();
        assert_eq!(times.len(), n, "{}: its client has ended", self.name);
        times
    }
}
