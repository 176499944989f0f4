//! Who gives tasks and waits for what comes of them.

use std::time::{Duration, Instant};

use keyholder::queue::{Front, Keys, QueueName};

/// No answer within this time, in seconds, ends the benchmark.
const DEADLINE: u64 = 60;

/// One queue, seen from outside.
pub(crate) struct Client {
    conn: redis::Connection,
    url: String,
    pub(crate) queue: QueueName,
    pub(crate) keys: Keys,
    next: u64,
}

impl Client {
    pub(crate) fn new(url: &str, queue: &str) -> Self {
        let queue: QueueName = queue.parse().unwrap();
        let conn = redis::Client::open(url).unwrap().get_connection().unwrap();
        Self { conn, url: url.to_owned(), keys: Keys::of(&queue), queue, next: 0 }
    }

    fn task(&mut self, action: &str) -> (String, String) {
        self.next += 1;
        let id = format!("bench-{}-{}", std::process::id(), self.next);
        let now = jiff::Timestamp::now();
        let task = format!(
            r#"{{"id":"{id}","action":"{action}","params":{{}},"by":"bench","issued_at":"{now:.3}"}}"#
        );
        (id, task)
    }

    /// Gives one task.
    pub(crate) fn give(&mut self, action: &str) {
        let (_, task) = self.task(action);
        redis::cmd("LPUSH").arg(&self.keys.queue).arg(task).exec(&mut self.conn).unwrap();
    }

    /// Gives many, a thousand at a time.
    pub(crate) fn give_many(&mut self, action: &str, mut n: usize) {
        while n > 0 {
            let now = n.min(1000);
            let mut cmd = redis::cmd("LPUSH");
            cmd.arg(&self.keys.queue);
            for _ in 0..now {
                cmd.arg(self.task(action).1);
            }
            cmd.exec(&mut self.conn).unwrap();
            n -= now;
        }
    }

    /// Waits for the next result of the queue.
    pub(crate) fn collect(&mut self) -> Vec<u8> {
        let answer: Option<(Vec<u8>, Vec<u8>)> =
            redis::cmd("BLPOP").arg(&self.keys.results).arg(DEADLINE).query(&mut self.conn).unwrap();
        answer.unwrap_or_else(|| panic!("{}: no result within {DEADLINE} s", self.queue)).1
    }

    /// From giving to the result, so many times one after the other; each result must have the word that a good one has.
    pub(crate) fn laps(&mut self, action: &str, good: &str, n: usize) -> Vec<Duration> {
        (0..n)
            .map(|_| {
                let (id, task) = self.task(action);
                let start = Instant::now();
                redis::cmd("LPUSH").arg(&self.keys.queue).arg(task).exec(&mut self.conn).unwrap();
                let result = self.collect();
                let took = start.elapsed();
                let result = String::from_utf8(result).unwrap();
                assert!(result.contains(&id) && result.contains(good), "{}: {result}", self.queue);
                took
            })
            .collect()
    }

    /// The same, by the code with which `keyholder run` gives a task and waits.
    pub(crate) fn laps_as_run(&mut self, action: &str, n: usize) -> Vec<Duration> {
        let tasks: Vec<_> = (0..n).map(|_| self.task(action)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let times = runtime.block_on(async {
            let mut front = Front::connect(&self.url).await.unwrap();
            let mut times = Vec::new();
            for (id, task) in tasks {
                let start = Instant::now();
                front.push(&self.queue, task.as_bytes()).await.unwrap();
                let deadline = Duration::from_secs(DEADLINE);
                let result = front.wait(&self.queue, &id, task.as_bytes(), deadline, |_| {}).await.unwrap();
                times.push(start.elapsed());
                assert!(result.is_some(), "{}: no result of {id}", self.queue);
            }
            times
        });
        self.forget();
        times
    }

    /// How many tasks are being worked on.
    pub(crate) fn in_flight(&mut self) -> usize {
        redis::cmd("LLEN").arg(&self.keys.in_flight).query(&mut self.conn).unwrap()
    }

    /// How many tasks wait.
    pub(crate) fn waiting(&mut self) -> usize {
        redis::cmd("LLEN").arg(&self.keys.queue).query(&mut self.conn).unwrap()
    }

    /// Whether a lane has the queue.
    pub(crate) fn is_served(&mut self) -> bool {
        redis::cmd("EXISTS").arg(&self.keys.owner).query(&mut self.conn).unwrap()
    }

    /// Throws results away that nobody collects.
    pub(crate) fn forget(&mut self) {
        redis::cmd("DEL").arg(&self.keys.results).exec(&mut self.conn).unwrap();
    }
}
