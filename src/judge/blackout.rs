//! Whether a watcher runs the `power` command of a node that does not answer. Silence has many causes; the command is run
//! only after each other cause that can be seen has been excluded.

use std::time::Duration;

use crate::vocabulary::human;

/// How much later each further watcher runs the `power` command.
const POWER_STEP: Duration = Duration::from_secs(20);
/// How much later for each that answers and will have run it. The host needs its time to boot, and a second command in the
/// middle of that may switch it off again.
const POWER_DONE: Duration = Duration::from_secs(600);
/// How long the kernel may keep a link address without having asked for it again (at most 45 s, by its defaults), and the time
/// until it has asked in vain.
const LINK_IS_OLD: Duration = Duration::from_secs(60);

/// What somebody who was asked has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PingReply {
    /// There is nobody to ask, or it cannot be seen whether there was an answer.
    Nobody(String),
    /// There was one: what.
    Came(String),
    /// The kernel has a link address for it, which may be from before.
    Link(String),
    /// There was none.
    None(String),
}

/// What was found out about the way to a silent node. Each text says how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The fault is on this host, or on the way; none if none was found.
    pub fault: Option<String>,
    /// Whether anything came from the node's own address.
    pub node: PingReply,
    /// Whether this host's default gateway answers.
    pub gateway: PingReply,
    /// Whether the witness of the fleet file answers; none if it names none.
    pub witness: Option<PingReply>,
}

/// What another watcher of the node says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It reaches the host.
    Reaches,
    /// It does not reach it, either.
    DoesNot,
    /// It has not looked yet: its supervisor has only just started.
    NotYet,
}

/// What a watcher knows of a node that does not answer at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blackout {
    /// For how long nobody has reached it, neither this watcher nor another that told it.
    pub for_: Duration,
    /// What was found out lately; none if the answer is still awaited.
    pub probe: Option<Probe>,
    /// What its other watchers say, those whose word counts: name, word, and the same in words.
    pub others: Vec<(String, Word, String)>,
    /// Which other nodes this watcher reaches, by name.
    pub reached: Vec<String>,
    /// How many other nodes this watcher watches.
    pub watched: usize,
    /// How many watchers come before this one.
    pub rank: u32,
    /// How many of those answer this one: they know as much, and see to it.
    pub able: u32,
}

/// How far one other cause of the silence is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is excluded.
    Excluded,
    /// It cannot be excluded, and nothing can be done about that: it is no reason to wait.
    CannotTell,
    /// It is being found out.
    Pending,
    /// It is so, or may well be: no `power`.
    Stands,
}

/// One other cause of the silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlackoutCause {
    /// The cause, in words.
    pub what: &'static str,
    /// How far it is excluded.
    pub found: Found,
    /// How, in words.
    pub how: String,
}

/// What follows for the `power` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Power {
    /// Run it now.
    Now,
    /// Look again in this time.
    In(Duration),
    /// Not by itself, for this reason.
    No(String),
}

/// Goes through the other causes of a silence, in the order in which somebody would look for them.
pub fn causes(blackout: &Blackout) -> Vec<BlackoutCause> {
    let cause = |what, (found, how)| BlackoutCause { what, found, how };
    let Blackout { probe, for_, .. } = blackout;
    let probed = |of: &dyn Fn(&Probe) -> (Found, String)| match probe {
        Some(probe) => of(probe),
        None => (Found::Pending, "it is being found out".to_owned()),
    };
    vec![
        cause(
            "the fault is on this host",
            probed(&|probe| match &probe.fault {
                Some(fault) => (Found::Stands, fault.clone()),
                None => (Found::Excluded, "packets leave it without an error".to_owned()),
            }),
        ),
        cause("its host is up, and a firewall hides it", probed(&|probe| hidden(&probe.node, *for_))),
        cause("another watcher reaches it", reached_by_others(&blackout.others)),
        cause("this host is cut off from its gateway", probed(&|probe| gateway(&probe.gateway, *for_))),
        cause("this host is cut off from everybody", probed(&|probe| alone(blackout, probe))),
    ]
}

fn hidden(node: &PingReply, for_: Duration) -> (Found, String) {
    match node {
        PingReply::Came(how) => (Found::Stands, format!("it answered: {how}")),
        PingReply::Link(how) if for_ >= LINK_IS_OLD => {
            (Found::Stands, format!("{how}, after {}", human(for_)))
        }
        PingReply::Link(how) => {
            (Found::Pending, format!("{how}; that may be from before for {}", human(LINK_IS_OLD)))
        }
        PingReply::None(how) => (Found::Excluded, how.clone()),
        PingReply::Nobody(how) => (Found::CannotTell, how.clone()),
    }
}

fn reached_by_others(others: &[(String, Word, String)]) -> (Found, String) {
    let told = |word: Word| -> Vec<&str> {
        others.iter().filter(|(_, said, _)| *said == word).map(|(_, _, text)| text.as_str()).collect()
    };
    let (reach, not_yet, not) = (told(Word::Reaches), told(Word::NotYet), told(Word::DoesNot));
    if !reach.is_empty() {
        (Found::Stands, reach.join(", "))
    } else if !not_yet.is_empty() {
        (Found::Pending, not_yet.join(", "))
    } else if !not.is_empty() {
        (Found::Excluded, not.join(", "))
    } else {
        (Found::CannotTell, "there is no other watcher to ask".to_owned())
    }
}

fn gateway(gateway: &PingReply, for_: Duration) -> (Found, String) {
    match gateway {
        PingReply::Came(how) => (Found::Excluded, how.clone()),
        PingReply::Link(how) if for_ >= LINK_IS_OLD => (Found::Excluded, how.clone()),
        PingReply::Link(how) => {
            (Found::Pending, format!("{how}; that may be from before for {}", human(LINK_IS_OLD)))
        }
        PingReply::None(how) => (Found::Stands, how.clone()),
        PingReply::Nobody(how) => (Found::CannotTell, how.clone()),
    }
}

fn alone(blackout: &Blackout, probe: &Probe) -> (Found, String) {
    let mut seen = Vec::new();
    if !blackout.reached.is_empty() {
        seen.push(format!("it reaches {}", blackout.reached.join(", ")));
    }
    match &probe.witness {
        Some(PingReply::Came(how)) => seen.push(format!("the witness answers: {how}")),
        // ARP comes in also where a rule of this host drops all that is IP.
        Some(PingReply::Link(how)) if seen.is_empty() => {
            return (Found::Stands, format!("the witness is to answer by IP: {how}"));
        }
        Some(PingReply::None(how) | PingReply::Nobody(how)) if seen.is_empty() => {
            return (Found::Stands, format!("the witness does not answer: {how}"));
        }
        Some(PingReply::Link(_) | PingReply::None(_) | PingReply::Nobody(_)) | None => {}
    }
    if !seen.is_empty() {
        return (Found::Excluded, seen.join("; "));
    }
    let text = if blackout.watched > 0 {
        "it reaches none of the nodes that it watches; add `witness: gateway` or `witness: ADDRESS` to `power`"
    } else {
        "it watches no other node, and `power` names no witness: add `witness: gateway` or `witness: ADDRESS`"
    };
    (Found::Stands, text.to_owned())
}

/// Decides whether a watcher runs the command now.
pub fn power(blackout: &Blackout, after: Duration) -> Power {
    let causes = causes(blackout);
    if let Some(cause) = causes.iter().find(|cause| cause.found == Found::Stands) {
        return Power::No(format!("{}: {}", cause.what, cause.how));
    }
    let turn = POWER_STEP * blackout.rank + POWER_DONE * blackout.able;
    let left = (after + turn).saturating_sub(blackout.for_);
    let pending = causes.iter().any(|cause| cause.found == Found::Pending);
    // Whatever is being found out wakes whoever waits for it; this is for the case that it does not.
    let left = if pending { left.max(Duration::from_secs(1)) } else { left };
    if left.is_zero() { Power::Now } else { Power::In(left) }
}

#[cfg(test)]
mod tests;
