//! The terminal itself: taken over, drawn on, and given back however this ends.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Instant;

use anyhow::Context as _;

use super::follow::{self, Woke};
use super::keys::{Effect, press};
use super::scene::Scene;
use super::{TICK, draw};
use crate::cli::exit::Exit;
use crate::cli::link::Link;
use crate::cli::status::args::StatusArgs;

/// What a shell says of a program that a signal has ended: this and the signal's number.
const BY_SIGNAL: i32 = 128;

/// Gives the terminal back when it goes. A panic does so before it is told: see [`ratatui::try_init`].
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        // If the terminal has gone there is nothing to give back.
        let _ = ratatui::try_restore();
    }
}

/// Shows the screen until somebody ends it.
///
/// # Errors
/// The terminal cannot be taken over or written to.
pub(super) fn run(args: &StatusArgs, link: Link) -> anyhow::Result<ExitCode> {
    let (to, woken) = mpsc::channel();
    follow::signals(&to).context("signals cannot be caught")?;
    let paint = args.color.paint();
    let mut scene = Scene::new(link.server().clone(), args.subject.clone(), Instant::now());
    let taken = Taken;
    let mut terminal = ratatui::try_init().context("the terminal cannot be taken over")?;
    follow::keys(&to);
    follow::supervisor(&args.link, link, &to);
    let end = loop {
        scene.tick(Instant::now());
        terminal
            .draw(|frame| draw::draw(frame, &scene, paint, Instant::now()))
            .context("the terminal cannot be written to")?;
        // One picture for everything that has come by now: a storm of changes is not a storm of pictures.
        let first = match woken.recv_timeout(TICK) {
            Ok(woke) => woke,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break Exit::Ok.into(),
        };
        let end =
            std::iter::once(first).chain(woken.try_iter()).find_map(|woke| take(&mut scene, woke, args, &to));
        if let Some(end) = end {
            break end;
        }
    };
    drop(taken);
    Ok(end)
}

/// Takes one thing in; how it ends, if it does.
fn take(scene: &mut Scene, woke: Woke, args: &StatusArgs, to: &Sender<Woke>) -> Option<ExitCode> {
    let now = Instant::now();
    match woke {
        Woke::Key(key) => match press(scene, key, now) {
            Effect::Quit => return Some(Exit::Ok.into()),
            Effect::Do(deed) => {
                scene.under_way += 1;
                follow::carry_out(&args.link, deed, to);
            }
            Effect::Show => {}
        },
        Woke::Resized => {}
        Woke::Deaf => return Some(Exit::Ok.into()),
        Woke::Signal(signal) => {
            return Some(ExitCode::from(u8::try_from(BY_SIGNAL + signal as i32).unwrap_or(u8::MAX)));
        }
        Woke::Connected(server, earlier) => scene.connected(server, earlier, now),
        Woke::Frame(frame) => scene.frame(*frame, now),
        Woke::Lost(why) => scene.lost(why, now),
        Woke::SceneReply(answer) => scene.answered(answer, now),
    }
    None
}
