//! What systemd is told: READY, STATUS at each transition, and the watchdog's ping after each pass of the loop.
//!
//! The socket never blocks. While PID 1 does not read it, what it should know is kept, newest only, and sent as soon as it reads
//! again. The ping comes first then: a PID 1 that hung for longer than `WatchdogSec=` reads what is queued and then ends every
//! service of which there was no ping in the queue.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// A daemon's line to PID 1. Outside systemd it does nothing.
#[derive(Debug)]
pub(crate) struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often the watchdog wants to hear of a completed pass; none if the unit has no `WatchdogSec=`.
    every: Option<Duration>,
    pinged: Instant,
    status: String,
    /// What PID 1 has not been told yet.
    open: Open,
    /// Since when PID 1 does not read, and what was not sent since then.
    deaf: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Open {
    ready: bool,
    stopping: bool,
    ping: bool,
    status: bool,
}

impl Notifier {
    /// Reads from the environment what systemd expects.
    pub(crate) fn from_environment() -> Self {
        // A third of the limit: two pings may be late before systemd gives us up.
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        // Without a service manager there is nobody to tell.
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|name| socket(name).ok());
        Self::new(to, every)
    }

    fn new(to: Option<(UnixDatagram, SocketAddr)>, every: Option<Duration>) -> Self {
        let (pinged, status) = (Instant::now(), String::new());
        Self { to, every, pinged, status, open: Open::default(), deaf: None }
    }

    /// Initialisation is complete.
    pub(crate) fn ready(&mut self) {
        self.open.ready = true;
        self.catch_up();
    }

    /// A clean stop has begun.
    pub(crate) fn stopping(&mut self) {
        self.open.stopping = true;
        self.catch_up();
    }

    /// Shows `status` in `systemctl status`, if it is a new one.
    pub(crate) fn status(&mut self, status: String) {
        if status != self.status {
            self.status = status;
            self.open.status = true;
            self.catch_up();
        }
    }

    /// The loop has just completed a pass. Only it calls this: a ping from a timer would say nothing.
    pub(crate) fn passed(&mut self) {
        if let Some(every) = self.every
            && self.pinged.elapsed() >= every / 2
        {
            self.open.ping = true;
            self.pinged = Instant::now();
        }
        self.catch_up();
    }

    /// How long the loop may sleep before it has to complete another pass.
    pub(crate) fn at_most(&self) -> Duration {
        let every = self.every.unwrap_or(Duration::from_secs(30));
        if self.deaf.is_some() { every.min(Duration::from_secs(1)) } else { every }
    }

    /// For how long PID 1 has not read what it is told.
    pub(crate) fn deaf_for(&self) -> Option<Duration> {
        self.deaf.map(|(since, _)| since.elapsed())
    }

    /// Completes as soon as PID 1 reads again; never, if it reads. Cancel safe.
    pub(crate) fn hears_again(&self) -> impl Future<Output = ()> + use<> {
        let waits = self.deaf.is_some().then(|| self.writable()).transpose();
        async move {
            // What cannot be waited for is tried again after a second.
            let Ok(Some(socket)) = waits else { return pending().await };
            if socket.writable().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    fn writable(&self) -> io::Result<tokio::net::UnixDatagram> {
        let Some((socket, to)) = &self.to else { return Err(io::ErrorKind::NotConnected.into()) };
        let socket = socket.try_clone()?;
        // Only a socket with a peer is not writable while the queue of that peer is full.
        socket.connect_addr(to)?;
        tokio::net::UnixDatagram::from_std(socket)
    }

    /// Tells what is still open, in the order in which it counts.
    fn catch_up(&mut self) {
        if self.open.ready && self.tell("READY=1") {
            self.open.ready = false;
        }
        if self.open.stopping && self.tell("STOPPING=1") {
            self.open.stopping = false;
        }
        if self.open.ping && self.tell("WATCHDOG=1") {
            self.open.ping = false;
        }
        if self.open.status && self.tell(&format!("STATUS={}", self.status.replace('\n', " "))) {
            self.open.status = false;
        }
    }

    /// True if it is told, or if that will never succeed.
    fn tell(&mut self, state: &str) -> bool {
        let Some((socket, to)) = &self.to else { return true };
        match socket.send_to_addr(state.as_bytes(), to) {
            Ok(_) => {
                self.deaf = None;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (_, missed) = self.deaf.get_or_insert((Instant::now(), 0));
                *missed = missed.saturating_add(1);
                false
            }
            // A message that cannot be sent as such is not worth another attempt.
            Err(_) => true,
        }
    }
}

/// A socket that never blocks, and the one of the service manager, by its path or (`@`) its abstract name.
fn socket(name: OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let name = name.into_vec();
    let to = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(&name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid1(dir: &tempfile::TempDir) -> (UnixDatagram, Notifier) {
        let path = dir.path().join("notify");
        let pid1 = UnixDatagram::bind(&path).unwrap();
        pid1.set_nonblocking(true).unwrap();
        let notifier = Notifier::new(Some(socket(path.into_os_string()).unwrap()), Some(Duration::ZERO));
        (pid1, notifier)
    }

    fn heard(pid1: &UnixDatagram) -> Vec<String> {
        let mut all = Vec::new();
        let mut buffer = [0; 256];
        while let Ok(size) = pid1.recv(&mut buffer) {
            all.push(String::from_utf8_lossy(&buffer[..size]).into_owned());
        }
        all
    }

    #[test]
    fn a_pid_1_that_does_not_read_blocks_nobody_and_hears_the_newest_state_later() {
        let dir = tempfile::tempdir().unwrap();
        let (pid1, mut notifier) = pid1(&dir);
        // A blocking sender would hang here for ever: the kernel keeps some hundred datagrams at most.
        for pass in 0..5_000 {
            notifier.status(format!("pass {pass}"));
            notifier.passed();
        }
        notifier.ready();
        assert!(notifier.deaf_for().is_some());
        assert!(notifier.at_most() <= Duration::from_secs(1));
        let before = heard(&pid1);
        assert!(!before.iter().any(|state| state == "READY=1"), "there was no room for it");
        notifier.passed();
        let after = heard(&pid1);
        assert_eq!(after, ["READY=1", "WATCHDOG=1", "STATUS=pass 4999"]);
        assert!(notifier.deaf_for().is_none());
    }

    #[tokio::test]
    async fn the_loop_is_woken_as_soon_as_pid_1_reads_again() {
        let dir = tempfile::tempdir().unwrap();
        let (pid1, mut notifier) = pid1(&dir);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, notifier.hears_again()).await.is_err(), "it reads");
        while notifier.deaf_for().is_none() {
            notifier.passed();
        }
        assert!(tokio::time::timeout(soon, notifier.hears_again()).await.is_err(), "it does not read");
        let (reads, ()) =
            tokio::join!(tokio::time::timeout(Duration::from_secs(5), notifier.hears_again()), async {
                assert!(pid1.recv(&mut [0; 256]).is_ok())
            },);
        assert!(reads.is_ok());
        notifier.passed();
        assert!(notifier.deaf_for().is_none());
        assert_eq!(heard(&pid1).last().map(String::as_str), Some("WATCHDOG=1"));
    }

    #[test]
    fn what_is_told_is_what_systemd_reads() {
        let dir = tempfile::tempdir().unwrap();
        let (pid1, mut notifier) = pid1(&dir);
        notifier.ready();
        notifier.status("one\ntwo".to_owned());
        notifier.status("one\ntwo".to_owned());
        notifier.stopping();
        assert_eq!(heard(&pid1), ["READY=1", "STATUS=one two", "STOPPING=1"]);
        let mut nobody = Notifier::new(None, None);
        nobody.ready();
        nobody.passed();
        assert!(nobody.deaf_for().is_none());
    }
}
