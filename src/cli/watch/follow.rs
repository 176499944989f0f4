//! What happens beside the screen: one thread follows the supervisor, one waits for keys, one for signals, and each order
//! has one of its own. All of them only send.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, Event, KeyEvent};

use super::question::PendingOrder;
use super::scene::SceneReply;
use super::{AGAIN, SILENCE, TICK};
use crate::cli::link::{Link, LinkArgs, LinkError, QUESTION_DEADLINE};
use crate::cli::render;
use crate::cli::screen::{Paint, Tone};
use crate::peer::wire::{EventLine, Hello, Outcome, Refusal, ServerFrame, Verb, Verdict};
use crate::vocabulary::{human, printable};

/// How many earlier records the screen begins with.
const EARLIER: u32 = 30;
/// What ends the screen from outside: asked to, interrupted, or its terminal is gone.
const SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Everything that can wake the screen.
#[derive(Debug)]
pub(super) enum Woke {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// No more keys will come.
    Deaf,
    Signal(Signal),
    Connected(Hello, Vec<EventLine>),
    Frame(Box<ServerFrame>),
    Lost(String),
    SceneReply(SceneReply),
}

/// Catches signals from here on. Before any other thread is started, since threads inherit what is blocked.
pub(super) fn signals(to: &Sender<Woke>) -> nix::Result<()> {
    let set: SigSet = SIGNALS.into_iter().collect();
    set.thread_block()?;
    let to = to.clone();
    thread::spawn(move || {
        while let Ok(signal) = set.wait() {
            if to.send(Woke::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Waits for keys for as long as there is a screen.
pub(super) fn keys(to: &Sender<Woke>) {
    let to = to.clone();
    thread::spawn(move || {
        loop {
            let woke = match event::read() {
                Ok(Event::Key(key)) => Woke::Key(key),
                Ok(Event::Resize(..)) => Woke::Resized,
                Ok(Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_)) => continue,
                Err(_) => Woke::Deaf,
            };
            let deaf = matches!(woke, Woke::Deaf);
            if to.send(woke).is_err() || deaf {
                return;
            }
        }
    });
}

/// Follows the supervisor for as long as there is a screen.
pub(super) fn supervisor(args: &LinkArgs, mut link: Link, to: &Sender<Woke>) {
    let (args, to) = (args.clone(), to.clone());
    thread::spawn(move || {
        loop {
            let Some(why) = one(&args, &mut link, &to) else { return };
            if to.send(Woke::Lost(why)).is_err() {
                return;
            }
            link = loop {
                thread::sleep(AGAIN);
                match args.open() {
                    Ok(link) => break link,
                    Err(why) if to.send(Woke::Lost(why.to_string())).is_err() => return,
                    Err(_) => {}
                }
            };
        }
    });
}

/// Follows one connection. Says why it ended; nothing if there is no screen any more.
fn one(args: &LinkArgs, link: &mut Link, to: &Sender<Woke>) -> Option<String> {
    match begin(link) {
        Ok(earlier) => to.send(Woke::Connected(link.server().clone(), earlier)).ok()?,
        Err(why) => return Some(why),
    }
    let mut heard = Instant::now();
    loop {
        match link.next(Instant::now() + TICK) {
            Ok(Some(frame)) => {
                heard = Instant::now();
                to.send(Woke::Frame(Box::new(frame))).ok()?;
            }
            Ok(None) if heard.elapsed() > SILENCE => {
                return Some(LinkError::Silent { path: args.socket.clone(), waited: SILENCE }.to_string());
            }
            Ok(None) => {}
            Err(why) => return Some(why.to_string()),
        }
    }
}

/// First the stream of records, then what was before it, then the state: nothing falls in between. A supervisor that
/// does not tell its records shows its state all the same.
fn begin(link: &mut Link) -> Result<Vec<EventLine>, String> {
    let here = link.server().node.clone();
    let mut ask = |verb| {
        link.ask(&here, None, verb, "", QUESTION_DEADLINE).map_err(|error: LinkError| error.to_string())
    };
    ask(Verb::Events {})?;
    let earlier = match ask(Verb::Audit { last: EARLIER })? {
        Verdict::Outcome(Outcome::Audit(lines)) => lines.into_iter().map(EventLine::from).collect(),
        Verdict::Outcome(_) | Verdict::Refused(_) => Vec::new(),
    };
    match ask(Verb::Watch {})? {
        Verdict::Outcome(Outcome::Watching) => Ok(earlier),
        Verdict::Outcome(_) => Err("unexpected reply to watch".to_owned()),
        Verdict::Refused(refusal) => Err(refused(&refusal)),
    }
}

/// Asks for something and sends the answer.
pub(super) fn carry_out(args: &LinkArgs, deed: PendingOrder, to: &Sender<Woke>) {
    let (args, to) = (args.clone(), to.clone());
    thread::spawn(move || {
        let begun = Instant::now();
        let verdict = args.open().and_then(|mut link| {
            let PendingOrder { target, verb, because, within } = &deed;
            link.ask(&target.node, Some(&target.worker), verb.clone(), because, *within)
        });
        let answer = match verdict {
            Ok(verdict) => told(&deed, &verdict, begun.elapsed()),
            Err(error) => bad(&deed, error.to_string()),
        };
        // If the screen has gone meanwhile, the audit has it.
        let _ = to.send(Woke::SceneReply(answer));
    });
}

fn bad(deed: &PendingOrder, text: String) -> SceneReply {
    let title = format!("{} {}", deed.verb.name(), deed.target);
    SceneReply { text: format!("{title}: {text}"), title, tone: Tone::Bad, page: false }
}

fn refused(refusal: &Refusal) -> String {
    format!("{}: {}", render::refused(refusal), printable(&refusal.text))
}

/// The answer in words: those of the command line.
pub(super) fn told(deed: &PendingOrder, verdict: &Verdict, took: Duration) -> SceneReply {
    let title = format!("{} {}", deed.verb.name(), deed.target);
    let target = &deed.target;
    let outcome = match verdict {
        Verdict::Refused(refusal) => return bad(deed, refused(refusal)),
        Verdict::Outcome(outcome) => outcome,
    };
    let (text, tone, page) = match outcome {
        Outcome::Explained(explanation) => {
            (render::explanation(explanation, None, Paint(false)), Tone::Good, true)
        }
        Outcome::ExplainedNode(explanation) => {
            (render::node_explanation(explanation, None, Paint(false)), Tone::Good, true)
        }
        Outcome::Held { for_ms } => (render::held(target, *for_ms), Tone::Good, false),
        Outcome::Failed(_) => {
            (render::relaunched(target, outcome, took).unwrap_or_default(), Tone::Bad, true)
        }
        Outcome::Relaunched(_) | Outcome::AlreadyRecovered { .. } => {
            (render::relaunched(target, outcome, took).unwrap_or_default(), Tone::Good, false)
        }
        Outcome::Remedied(done) => {
            let tone = if done.helped == Some(false) { Tone::Bad } else { Tone::Good };
            (render::remedied(target, outcome, took).unwrap_or_default(), tone, false)
        }
        Outcome::Drilled(report) => {
            let (word, tone) = if report.passed { ("passed", Tone::Good) } else { ("FAILED", Tone::Bad) };
            let mut text = format!(
                "{target} rehearsed {}: {word} after {}: {}\n",
                report.class,
                human(took),
                printable(&report.why)
            );
            for fact in &report.evidence {
                text.push_str(&format!("  {}\n", printable(fact)));
            }
            (text, tone, true)
        }
        Outcome::Powered { .. }
        | Outcome::Status(_)
        | Outcome::Fleet(_)
        | Outcome::Released { .. }
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Noted
        | Outcome::Watching => return bad(deed, "unexpected reply".to_owned()),
    };
    SceneReply { title, text, tone, page }
}
