//! Signs in the journal: the last line of each unit's own. One that stays the same is a sign only if a later one would have been
//! there to be read; whatever keeps lines from arriving is the cause then, and not the worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::journal::{self, Conf, LastLine};
use crate::judge::Reading;
use crate::systemd::{Facts, Systemd};
use crate::vocabulary::UnitName;

/// journald's own unit.
const JOURNALD: &str = "systemd-journald.service";
/// What a line may take from a process into the journal, and the end of a rate limit's interval to be noticed.
const SLACK: Duration = Duration::from_secs(1);

/// What was read last of each unit: its proper name, and the mark of its last line.
type LastMarks = BTreeMap<UnitName, (UnitName, Option<u64>)>;

/// The units whose lines were read.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    known: Arc<Mutex<LastMarks>>,
}

/// What holds for all units of one look.
struct Host {
    conf: Conf,
    /// When journald was started: microseconds of `CLOCK_MONOTONIC`.
    since: u64,
}

impl Journal {
    /// Forgets what is looked at no longer.
    pub(super) fn keep(&self, units: &[&UnitName]) {
        self.known().retain(|unit, _| units.contains(&unit));
    }

    /// Reads these, in their order. After one failure the others are not tried: the journal is the same for all.
    pub(super) async fn read(
        &self,
        systemd: &Systemd,
        units: Vec<(usize, UnitName)>,
    ) -> Vec<(usize, Reading)> {
        let mut wrong: Option<String> = None;
        let mut host: Option<Host> = None;
        let mut readings = Vec::with_capacity(units.len());
        for (number, unit) in units {
            let reading = match &wrong {
                Some(why) => Err(why.clone()),
                None => match self.look(systemd, &unit, &mut host).await {
                    Err(Blind::All(why)) => Err(wrong.insert(why).clone()),
                    Err(Blind::One(why)) => Err(why),
                    Ok(reading) => Ok(reading),
                },
            };
            readings.push((number, reading.unwrap_or_else(Reading::Failed)));
        }
        readings
    }

    async fn look(
        &self,
        systemd: &Systemd,
        unit: &UnitName,
        host: &mut Option<Host>,
    ) -> Result<Reading, Blind> {
        let known = self.known().get(unit).cloned();
        let before = known.as_ref().and_then(|(_, mark)| *mark);
        // Its proper name does not change while it is watched.
        if let Some((id, Some(before))) = &known
            && let Some(line) = last(id).await?
            && line.mark != *before
        {
            self.note(unit, id, Some(line.mark));
            return Ok(Reading::Mark(line.mark));
        }
        let logging = systemd.facts(unit).await.map_err(|why| {
            Blind::One(format!("whether lines of {unit} reach the journal cannot be seen: {why}"))
        })?;
        let id = logging.id.clone().unwrap_or_else(|| unit.clone());
        let host = match host {
            Some(host) => host,
            None => host.insert(Host::look(systemd).await?),
        };
        // Only now is what was written before this moment in the journal.
        let line = last(&id).await?;
        let mark = line.as_ref().map(|line| line.mark);
        self.note(unit, &id, mark);
        if mark.is_some() && before.is_some() && mark != before {
            return Ok(mark.map_or_else(|| silent(&id), Reading::Mark));
        }
        if let Some(why) = unseen(&id, &logging, host, line.as_ref(), now_us()) {
            return Err(Blind::One(why));
        }
        if let Some(why) = limited(&id, &logging, host, line.as_ref(), now_us()).await? {
            return Err(Blind::One(why));
        }
        Ok(mark.map_or_else(|| silent(&id), Reading::Mark))
    }

    fn note(&self, unit: &UnitName, id: &UnitName, mark: Option<u64>) {
        self.known().insert(unit.clone(), (id.clone(), mark));
    }

    fn known(&self) -> MutexGuard<'_, LastMarks> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nothing is known: of this unit, or of any.
enum Blind {
    One(String),
    All(String),
}

impl Host {
    async fn look(systemd: &Systemd) -> Result<Self, Blind> {
        let unseen = |why: String| Blind::All(format!("lines cannot be seen, journald is the cause: {why}"));
        let journald: UnitName = JOURNALD.parse().map_err(|_| unseen(format!("{JOURNALD} is no unit")))?;
        let logging = systemd
            .facts(&journald)
            .await
            .map_err(|why| Blind::All(format!("whether journald runs cannot be seen: {why}")))?;
        if logging.active != "active" {
            return Err(unseen(format!("{JOURNALD} is {}; systemctl start {JOURNALD}", logging.active)));
        }
        let conf = Conf::of_host();
        if conf.keeps_nothing {
            return Err(unseen("Storage=none in journald.conf keeps nothing".to_owned()));
        }
        journal::sync().await.map_err(|error| {
            unseen(format!("it does not answer within a second ({error}); systemctl status {JOURNALD}"))
        })?;
        Ok(Self { conf, since: logging.active_since })
    }
}

async fn last(unit: &UnitName) -> Result<Option<LastLine>, Blind> {
    journal::last_line(unit).await.map_err(|error| Blind::All(error.to_string()))
}

fn silent(unit: &UnitName) -> Reading {
    Reading::Silent(format!("{unit} has no line in the journal, and none came"))
}

fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Why a later line of this run would not be in the journal, by what is set and what has happened.
fn unseen(id: &UnitName, logging: &Facts, host: &Host, line: Option<&LastLine>, now: u64) -> Option<String> {
    if !logging.namespace.is_empty() {
        let namespace = &logging.namespace;
        return Some(format!(
            "lines of {id} are kept in a journal of their own (LogNamespace={namespace}), which is not read; take another heartbeat"
        ));
    }
    let own = line.filter(|line| line.invocation.is_some() && line.invocation == logging.invocation);
    let direct = own.is_some_and(|line| line.direct);
    if let Some(why) = logging.elsewhere().filter(|_| !direct) {
        return Some(format!("lines of {id} cannot be seen in the journal: {why}; take another heartbeat"));
    }
    let heard = own.map_or(0, |line| line.at);
    let up = logging.active_since;
    // A stopped journald drops the streams that it held, and with them all that is written there from then on.
    let lost = up != 0 && up < host.since && heard < host.since && !direct && host.since <= now;
    lost.then(|| {
        format!(
            "journald was started again while {id} ran, and nothing came from it since: its connection to journald may have been \
             lost; restart {id} when it suits, or take another heartbeat"
        )
    })
}

/// Whether journald may be dropping lines of this unit because there were too many.
async fn limited(
    id: &UnitName,
    logging: &Facts,
    host: &Host,
    line: Option<&LastLine>,
    now: u64,
) -> Result<Option<String>, Blind> {
    let (Some((interval, burst)), Some(line)) = (logging.rate().or(host.conf.rate), line) else {
        return Ok(None);
    };
    let ago = Duration::from_micros(now.saturating_sub(line.at));
    if line.at > now || ago > interval + SLACK {
        return Ok(None);
    }
    let since = line.wall.saturating_sub(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX));
    let count =
        journal::count_since(id, since, burst).await.map_err(|error| Blind::All(error.to_string()))?;
    Ok((count >= burst).then(|| {
        format!(
            "journald drops lines of {id}: it had {burst} within {interval:?}, which is its limit (LogRateLimitIntervalSec=, \
             LogRateLimitBurst= of the unit, or RateLimitBurst= in journald.conf)"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> UnitName {
        "agent.service".parse().unwrap()
    }

    fn logging() -> Facts {
        Facts {
            id: Some(name()),
            active: "active".to_owned(),
            invocation: "0123456789abcdef0123456789abcdef".parse().ok(),
            active_since: 100,
            output: "journal".to_owned(),
            error: "inherit".to_owned(),
            ..Facts::default()
        }
    }

    fn line(at: u64, direct: bool) -> LastLine {
        LastLine { mark: 1, at, wall: at, invocation: logging().invocation, direct }
    }

    fn host(since: u64) -> Host {
        Host { conf: Conf::default(), since }
    }

    #[test]
    fn a_line_that_could_not_arrive_is_not_missed() {
        let sees = |logging: &Facts, host: &Host, line: Option<&LastLine>| {
            unseen(&name(), logging, host, line, 1_000).is_none()
        };
        assert!(sees(&logging(), &host(50), None));
        assert!(sees(&logging(), &host(50), Some(&line(200, false))));
        let elsewhere = Facts { output: "null".to_owned(), ..logging() };
        assert!(!sees(&elsewhere, &host(50), Some(&line(200, false))));
        assert!(sees(&elsewhere, &host(50), Some(&line(200, true))), "it speaks to journald by itself");
        let earlier = LastLine { invocation: None, ..line(200, true) };
        assert!(!sees(&elsewhere, &host(50), Some(&earlier)), "that was another run");
        let apart = Facts { namespace: "apart".to_owned(), ..logging() };
        assert!(!sees(&apart, &host(50), Some(&line(200, false))));
        // journald was stopped and started at 500.
        assert!(!sees(&logging(), &host(500), Some(&line(200, false))));
        assert!(sees(&logging(), &host(500), Some(&line(600, false))));
        assert!(sees(&Facts { active_since: 600, ..logging() }, &host(500), None));
    }
}
