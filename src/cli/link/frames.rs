//! Frames over a blocking stream, with a deadline on each wait.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::error::{LinkError, Stage};
use crate::peer::wire::{ClientFrame, MAX_REPLY, ServerFrame};

/// Most answers fit in one read of this size.
const CHUNK: usize = 8192;
/// How long one deadline may be overrun for what lies in the socket already. A command that was stopped, or whose laptop slept,
/// finds its deadline over before it has read what came meanwhile.
const OVERRUN: Duration = Duration::from_millis(250);
/// How long a read waits that is only for what lies there: none would be for ever.
const NO_WAIT: Duration = Duration::from_millis(1);

/// A stream that carries frames.
#[derive(Debug)]
pub(super) struct Frames {
    stream: UnixStream,
    path: PathBuf,
    /// What was read and not yet taken as a frame: a wait that times out in the middle of a frame loses nothing.
    unread: Vec<u8>,
    /// The last deadline that was over before its frame was there, and until when it is overrun.
    overrun: Option<(Instant, Instant)>,
    /// How far the connection has come, for the error that says where it ended.
    pub(super) stage: Stage,
}

impl Frames {
    /// Connects within `deadline`. The standard library's connect would wait for ever on a supervisor that has
    /// stopped accepting; `SO_SNDTIMEO` bounds that too.
    pub(super) fn connect(path: &Path, deadline: Duration) -> Result<Self, LinkError> {
        let connected = || -> nix::Result<UnixStream> {
            let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            let limit = TimeVal::nanoseconds(deadline.as_nanos().try_into().unwrap_or(i64::MAX));
            setsockopt(&fd, sockopt::SendTimeout, &limit)?;
            connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
            Ok(UnixStream::from(fd))
        };
        let stream = connected().map_err(|errno| {
            let path = path.to_owned();
            if matches!(errno, Errno::ENOENT | Errno::ECONNREFUSED) {
                LinkError::Absent { path }
            } else if matches!(errno, Errno::EACCES | Errno::EPERM) {
                LinkError::Forbidden { path }
            } else if errno == Errno::EAGAIN {
                LinkError::Silent { path, waited: deadline }
            } else {
                LinkError::Io { path, source: errno.into() }
            }
        })?;
        Ok(Self { stream, path: path.to_owned(), unread: Vec::new(), overrun: None, stage: Stage::Greeting })
    }

    /// The socket it is connected to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a frame in one write. That the other side has hung up is found when its last words are read.
    pub(super) fn send(&mut self, frame: &ClientFrame) -> Result<(), LinkError> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, frame)
            .map_err(|source| LinkError::Garbage { path: self.path.clone(), source })?;
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX).to_be_bytes();
        bytes.iter_mut().zip(length).for_each(|(to, from)| *to = from);
        match self.stream.write_all(&bytes) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(self.io(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The next frame, or none if none is complete by `until` and none lies in the socket either.
    pub(super) fn next(&mut self, until: Instant) -> Result<Option<ServerFrame>, LinkError> {
        loop {
            if let Some(frame) = self.complete()? {
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now());
            let over = left.is_zero();
            if over && !self.may_overrun(until) {
                return Ok(None);
            }
            let wait = if over { NO_WAIT } else { left };
            self.stream.set_read_timeout(Some(wait)).map_err(|error| self.io(error))?;
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(LinkError::Closed { when: self.stage }),
                Ok(length) => self.unread.extend(chunk.iter().take(length)),
                Err(error) if over && error.kind() != ErrorKind::Interrupted && again(&error) => {
                    return Ok(None);
                }
                Err(error) if again(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(LinkError::Closed { when: self.stage });
                }
                Err(error) => return Err(self.io(error)),
            }
        }
    }

    /// Whether more may be read although `until` is over: for a moment only, or who never stops talking would be listened to
    /// for ever.
    fn may_overrun(&mut self, until: Instant) -> bool {
        let now = Instant::now();
        match self.overrun {
            Some((of, end)) if of == until => now < end,
            Some(_) | None => {
                self.overrun = Some((until, now + OVERRUN));
                true
            }
        }
    }

    /// Takes a complete frame off the front of what was read. Never more than one frame and one chunk is kept.
    fn complete(&mut self) -> Result<Option<ServerFrame>, LinkError> {
        let Some((head, rest)) = self.unread.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_REPLY {
            return Err(LinkError::TooLong { path: self.path.clone(), length });
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = serde_json::from_slice(body)
            .map_err(|source| LinkError::Garbage { path: self.path.clone(), source })?;
        self.unread.drain(..4 + length);
        Ok(Some(frame))
    }

    fn io(&self, source: io::Error) -> LinkError {
        LinkError::Io { path: self.path.clone(), source }
    }
}

/// A read that ended without an end: a signal, or its time is up, which the caller's clock will find as well.
fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
