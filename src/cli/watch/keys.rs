//! What keys do: a key and the scene in, an order or nothing out. Whatever touches a worker is asked about first.

// A key is not our enum, and every key that means nothing means the same.
#![allow(clippy::wildcard_enum_match_arm)]

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::question::{PendingOrder, Question};
use super::scene::{Page, Scene, target};
use crate::cli::ask::reason;
use crate::cli::link::QUESTION_DEADLINE;
use crate::cli::screen::Tone;
use crate::peer::wire::{DrillOrder, GentleOrder, MAX_BECAUSE, RelaunchOrder, Verb};
use crate::vocabulary::FailureClass;

/// How long a relaunch or a nudge may take to be answered, as on the command line.
const ACT: Duration = Duration::from_secs(120);
/// The same for a rehearsal: the longest lease, and what its node may take afterwards.
const REHEARSAL: Duration = Duration::from_secs(750);
/// How many orders may be under way.
const AT_ONCE: usize = 4;
/// How far a page key goes.
const PAGE: isize = 10;
/// The longest hold, in minutes: a week, as the supervisor has it.
const HOLD_AT_MOST: u64 = 7 * 24 * 60;
const HOLD_DEFAULT: &str = "30";

/// What follows from a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// What is shown may have changed.
    Show,
    /// Ask this.
    Do(PendingOrder),
    /// The end.
    Quit,
}

/// Takes a key.
pub(super) fn press(scene: &mut Scene, key: KeyEvent, now: Instant) -> Effect {
    if key.kind == KeyEventKind::Release {
        return Effect::Show;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Effect::Quit,
            _ => Effect::Show,
        };
    }
    if let Some(question) = scene.question.take() {
        return answer(scene, question, key.code, now);
    }
    match &mut scene.page {
        Page::Fleet => fleet(scene, key.code, now),
        Page::Help => {
            scene.page = Page::Fleet;
            if key.code == KeyCode::Char('q') { Effect::Quit } else { Effect::Show }
        }
        Page::Text { lines, top, .. } => {
            match key.code {
                KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => *top = (*top + 1).min(lines.len().saturating_sub(1)),
                _ => scene.page = Page::Fleet,
            }
            Effect::Show
        }
    }
}

fn fleet(scene: &mut Scene, code: KeyCode, now: Instant) -> Effect {
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
        KeyCode::Char('?') => scene.page = Page::Help,
        KeyCode::Up | KeyCode::Char('k') => scene.step(-1),
        KeyCode::Down | KeyCode::Char('j') => scene.step(1),
        KeyCode::PageUp => scene.step(-PAGE),
        KeyCode::PageDown => scene.step(PAGE),
        KeyCode::Home | KeyCode::Char('g') => scene.step(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => scene.step(isize::MAX),
        KeyCode::Char(letter @ ('e' | 'h' | 'r' | 'd' | 'n')) => return order(scene, letter, now),
        KeyCode::Enter => return order(scene, 'e', now),
        _ => {}
    }
    Effect::Show
}

fn order(scene: &mut Scene, letter: char, now: Instant) -> Effect {
    let Some(of) = scene.selected().map(target) else {
        scene.say("there is no worker to do that with".to_owned(), Tone::Fair, now);
        return Effect::Show;
    };
    if scene.under_way >= AT_ONCE {
        scene.say(format!("{AT_ONCE} orders are under way: wait for one of them"), Tone::Fair, now);
        return Effect::Show;
    }
    let sure = |verb, within| Some(Question::Sure(PendingOrder::new(of.clone(), verb, within)));
    scene.question = match letter {
        'h' => Some(Question::HoldFor(of, HOLD_DEFAULT.to_owned())),
        'd' => Some(Question::Class(of)),
        // Answered when it has stayed up, as on the command line.
        'r' => sure(Verb::Relaunch(RelaunchOrder { settled: true, ..RelaunchOrder::default() }), ACT),
        'n' => sure(Verb::Nudge(GentleOrder::default()), ACT),
        _ => return Effect::Do(PendingOrder::new(of, Verb::Explain {}, QUESTION_DEADLINE)),
    };
    Effect::Show
}

fn answer(scene: &mut Scene, question: Question, code: KeyCode, now: Instant) -> Effect {
    if code == KeyCode::Esc {
        return Effect::Show;
    }
    match question {
        // Any other key is a no.
        Question::Sure(deed) if matches!(code, KeyCode::Char('y' | 'Y')) => return Effect::Do(deed),
        Question::Sure(_) => {}
        Question::HoldFor(of, mut text) => {
            match code {
                KeyCode::Char(digit) if digit.is_ascii_digit() && text.len() < 5 => text.push(digit),
                KeyCode::Backspace => drop(text.pop()),
                KeyCode::Enter => match text.parse::<u64>() {
                    Ok(minutes @ 1..=HOLD_AT_MOST) => {
                        scene.question = Some(Question::HoldWhy(of, minutes, String::new()));
                        return Effect::Show;
                    }
                    Ok(_) | Err(_) => {
                        scene.say(format!("1 to {HOLD_AT_MOST} minutes, a week at most"), Tone::Fair, now);
                    }
                },
                _ => {}
            }
            scene.question = Some(Question::HoldFor(of, text));
        }
        Question::HoldWhy(of, minutes, mut text) => {
            match code {
                KeyCode::Char(letter) if text.chars().count() < MAX_BECAUSE => text.push(letter),
                KeyCode::Backspace => drop(text.pop()),
                KeyCode::Enter => match reason(&text) {
                    Ok(because) => {
                        let verb = Verb::Hold { for_ms: minutes.saturating_mul(60_000) };
                        return Effect::Do(PendingOrder {
                            because,
                            ..PendingOrder::new(of, verb, QUESTION_DEADLINE)
                        });
                    }
                    Err(why) => scene.say(why, Tone::Fair, now),
                },
                _ => {}
            }
            scene.question = Some(Question::HoldWhy(of, minutes, text));
        }
        Question::Class(of) => {
            let class = match code {
                KeyCode::Char('d') => FailureClass::Dead,
                KeyCode::Char('s') => FailureClass::Stuck,
                KeyCode::Char('g') => FailureClass::DeliveryGap,
                _ => return Effect::Show,
            };
            // Its node knows how long its detector and remedies may take; that a critical one is meant is asked here.
            let order = DrillOrder { class, lease_ms: 0, yes: true };
            scene.question = Some(Question::Sure(PendingOrder::new(of, Verb::Drill(order), REHEARSAL)));
        }
    }
    Effect::Show
}
