//! What a lane says: into the journal if systemd has led it there and it is up, else to standard error. From a thread of
//! its own, because journald may be stopped, and a lane must not stop with it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::dispatcher::{Dispatch, with_default};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

use super::result::TaskResult;
use crate::catalog::Mode;
use crate::journal::leads_to_journal;
pub use crate::journal::{EXECUTED, TRANSITION};
use crate::queue::CANARY;
use crate::vocabulary::printable;

/// How many lines wait for journald.
const QUEUE: usize = 1024;
/// How many lines about itself a lane writes in a minute, however often its server comes and goes.
const PER_MINUTE: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);
const TARGET: &str = "keyholder-lane";

/// One line.
#[derive(Debug)]
struct Line {
    warning: bool,
    text: String,
    task: Option<TaskFields>,
    /// How many lines before this one are missing.
    gap: Option<u64>,
}

#[derive(Debug)]
struct TaskFields {
    id: String,
    action: String,
    status: &'static str,
    code: Option<&'static str>,
    /// Whether it is said for a lane that died before it could.
    recovered: Option<&'static str>,
}

enum Post {
    Line(Box<Line>),
    Flush(SyncSender<()>),
}

/// What was said of late, and what was not.
#[derive(Debug, Default)]
struct Recent {
    said: VecDeque<Instant>,
    withheld: u32,
    last: Option<(bool, String)>,
}

/// The lane's voice.
#[derive(Debug)]
pub(super) struct JournalWriter {
    to: SyncSender<Post>,
    lost: Arc<AtomicU64>,
    /// How many lines were handed over, and how many of these are written.
    posted: Cell<u64>,
    written: Arc<AtomicU64>,
    recent: RefCell<Recent>,
}

impl JournalWriter {
    /// Starts the thread.
    pub(super) fn start(lane: Mode, node: &str, queue: &str) -> io::Result<Self> {
        let (to, from) = sync_channel(QUEUE);
        let lost = Arc::<AtomicU64>::default();
        let written = Arc::<AtomicU64>::default();
        let mut sink = Sink {
            lane: lane.name(),
            node: node.to_owned(),
            queue: queue.to_owned(),
            journal: leads_to_journal(),
            dispatch: None,
            lost: lost.clone(),
            written: written.clone(),
        };
        thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || sink.run(&from))?;
        Ok(Self { to, lost, posted: Cell::default(), written, recent: RefCell::default() })
    }

    /// What became of a task. Only what was run is called executed.
    pub(super) fn task(&self, result: &TaskResult) {
        self.task_of(result, false);
    }

    /// The same for a lane before this one, which may have died before it could say so. Whoever reads it must not count the
    /// two as two.
    pub(super) fn task_again(&self, result: &TaskResult) {
        self.task_of(result, true);
    }

    fn task_of(&self, result: &TaskResult, again: bool) {
        let action = result.action.clone().unwrap_or_else(|| "?".to_owned());
        let status = result.status.name();
        let mut text = match (&result.refusal, &result.ran, &result.note) {
            (Some(refusal), _, _) => format!("refused action={action} code={}", refusal.text),
            (None, Some(_), _) => format!("executed action={action} status={status}"),
            // There is nothing to run for a canary: it was done all the same.
            (None, None, None) if action == CANARY => format!("executed action={action} status={status}"),
            (None, None, note) => {
                format!(
                    "not executed action={action} status={status}: {}",
                    note.as_deref().unwrap_or_default()
                )
            }
        };
        let code = result.refusal.as_ref().map(|refusal| refusal.code.name());
        let recovered = again.then(|| {
            let run = result.invocation.as_deref().unwrap_or("that is not known");
            text.push_str(&format!(
                " (recovered: said for run {run} of this lane, which may have died before it could)"
            ));
            "1"
        });
        let task = TaskFields { id: result.id.clone(), action, status, code, recovered };
        self.post(Line { warning: code.is_some(), text, task: Some(task), gap: None });
    }

    /// What the lane has to say about itself. After five lines in a minute only the last is kept, for later.
    pub(super) fn transition(&self, warning: bool, text: String) {
        {
            let mut recent = self.recent.borrow_mut();
            if recent.last.replace((warning, text)).is_some() {
                recent.withheld += 1;
            }
        }
        self.catch_up();
    }

    /// What the lane answers to somebody's own doing, however much it has said in this minute.
    pub(super) fn reply(&self, warning: bool, text: String) {
        self.post(Line { warning, text, task: None, gap: None });
    }

    /// JournalWriter what was kept, once the minute is over: the present state is never left unsaid for long.
    pub(super) fn catch_up(&self) {
        let now = Instant::now();
        let (warning, text) = {
            let recent = &mut *self.recent.borrow_mut();
            recent.said.retain(|at| now.duration_since(*at) < MINUTE);
            if recent.said.len() >= PER_MINUTE {
                return;
            }
            let Some((warning, mut text)) = recent.last.take() else { return };
            recent.said.push_back(now);
            if recent.withheld > 0 {
                text = format!("{text} ({} lines before this were left out)", recent.withheld);
                recent.withheld = 0;
            }
            (warning, text)
        };
        self.post(Line { warning, text, task: None, gap: None });
    }

    fn post(&self, line: Line) {
        match self.to.try_send(Post::Line(Box::new(line))) {
            Ok(()) => self.posted.set(self.posted.get() + 1),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Up to here everything is said once [`said`](Self::said) says so. What was lost because the journal did not follow is
    /// told there as missing and never comes.
    pub(super) fn mark(&self) -> u64 {
        self.posted.get()
    }

    /// Whether everything up to that mark is written.
    pub(super) fn said(&self, mark: u64) -> bool {
        self.written.load(Ordering::Acquire) >= mark
    }

    /// Waits until everything so far is written, at most that long. Blocks: for the very end.
    pub(super) fn flush(&self, at_most: Duration) {
        let (done, wait) = sync_channel(1);
        if self.to.try_send(Post::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(at_most);
        }
    }
}

struct Sink {
    lane: &'static str,
    node: String,
    queue: String,
    /// Whether it says it to the journal at all.
    journal: bool,
    dispatch: Option<Dispatch>,
    lost: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl Sink {
    fn run(&mut self, from: &Receiver<Post>) {
        while let Ok(post) = from.recv() {
            match post {
                Post::Line(line) => {
                    let lost = self.lost.swap(0, Ordering::Relaxed);
                    if lost > 0 {
                        let text =
                            format!("{lost} records are missing here, because journald did not follow");
                        self.write(&Line { warning: true, text, task: None, gap: Some(lost) });
                    }
                    self.write(&line);
                    self.written.fetch_add(1, Ordering::Release);
                }
                Post::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, line: &Line) {
        if self.journal
            && self.dispatch.is_none()
            && let Ok(layer) = tracing_journald::layer()
        {
            let layer = layer.with_field_prefix(None).with_syslog_identifier("keyholder-lane".to_owned());
            let ours = filter_fn(|meta| meta.target() == TARGET).with_max_level_hint(LevelFilter::DEBUG);
            self.dispatch = Some(Dispatch::new(Registry::default().with(layer).with(ours)));
        }
        match &self.dispatch {
            Some(dispatch) => with_default(dispatch, || self.event(line)),
            // Nobody reads it if this fails as well.
            None => drop(writeln!(io::stderr(), "{}", printable(&line.text))),
        }
    }

    fn event(&self, line: &Line) {
        let text = printable(&line.text);
        let task = line.task.as_ref();
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET,
                    tracing::Level::$level,
                    MESSAGE_ID = if task.is_some() { EXECUTED } else { TRANSITION },
                    KEYHOLDER_NODE = self.node.as_str(),
                    KEYHOLDER_LANE = self.lane,
                    KEYHOLDER_QUEUE = self.queue.as_str(),
                    KEYHOLDER_TASK_ID = task.map(|task| task.id.as_str()),
                    KEYHOLDER_ACTION = task.map(|task| task.action.as_str()),
                    KEYHOLDER_STATUS = task.map(|task| task.status),
                    KEYHOLDER_CODE = task.and_then(|task| task.code),
                    KEYHOLDER_RECOVERED = task.and_then(|task| task.recovered),
                    KEYHOLDER_MISSING = line.gap,
                    message = &*text,
                )
            };
        }
        if line.warning { event!(WARN) } else { event!(INFO) }
    }
}
