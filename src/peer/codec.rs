//! From bytes to frames and back, strictly.
//!
//! The size is checked before anything is allocated, text from outside is bounded and free of control characters, and
//! an error never repeats more than a line of what it was given.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

use super::wire::{ClientFrame, Hello, MAX_BECAUSE, RefusalCode, ServerFrame};
use crate::vocabulary::{ReqId, bounded, is_unsafe};

/// How long a frame may take from its first byte to its last (design, section 7). Between frames there is no limit.
pub const FRAME_DEADLINE: Duration = Duration::from_secs(5);
/// The longest version string in a hello, in characters.
const MAX_VERSION: usize = 64;
/// How much of a parser's complaint is passed on, in characters: it may quote what the other side sent.
const MAX_COMPLAINT: usize = 160;
/// How much room is made for one read, in bytes. Memory grows with what has arrived, not with what was announced.
const READ_STEP: usize = 4096;
const HEADER: usize = 4;

/// Why a frame could not be read, understood or written.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It is not a frame of this protocol.
    #[error("not a frame of keyholder/1: {0}")]
    Malformed(String),
    /// It is longer than this side reads.
    #[error("a frame of {size} bytes, where at most {max} are allowed")]
    TooLarge {
        /// The announced or actual size, in bytes.
        size: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// It was begun and not finished in time.
    #[error("a frame was begun and not finished within {} s", FRAME_DEADLINE.as_secs())]
    TooSlow,
    /// The other side does not read what it is sent.
    #[error("the peer does not read: the write timed out after {} s", FRAME_DEADLINE.as_secs())]
    NotTaken,
    /// The connection ended inside a frame.
    #[error("the connection ended inside a frame")]
    Truncated,
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
}

impl WireError {
    /// The refusal that tells the other side, where there is something to tell it.
    pub fn code(&self) -> Option<RefusalCode> {
        match self {
            Self::Malformed(_) => Some(RefusalCode::Malformed),
            Self::TooLarge { .. } => Some(RefusalCode::TooLarge),
            Self::TooSlow | Self::NotTaken | Self::Truncated | Self::Io(_) => None,
        }
    }
}

/// The id in a reply that answers no request in particular but the connection as a whole: all zero.
pub fn no_request() -> ReqId {
    ReqId::from_bytes([0; 16])
}

/// Reads a client's frame (without its length).
///
/// # Errors
/// [`WireError::Malformed`] for anything but exactly one frame of the protocol.
pub fn decode_client(bytes: &[u8]) -> Result<ClientFrame, WireError> {
    if has_list(bytes) {
        return Err(WireError::Malformed("there is a list in it".to_owned()));
    }
    let frame = decode(bytes)?;
    match &frame {
        ClientFrame::Hello(hello) => check_hello(hello)?,
        ClientFrame::Request(request) => {
            if request.because.chars().count() > MAX_BECAUSE {
                return Err(WireError::Malformed(format!(
                    "`because` has more than {MAX_BECAUSE} characters"
                )));
            }
            if request.because.chars().any(is_unsafe) {
                return Err(WireError::Malformed("`because` has control characters in it".to_owned()));
            }
        }
    }
    Ok(frame)
}

/// Reads a supervisor's frame (without its length). Its texts may hold anything that JSON may: whoever shows them
/// escapes them.
///
/// # Errors
/// [`WireError::Malformed`] for anything but exactly one frame of the protocol.
pub fn decode_server(bytes: &[u8]) -> Result<ServerFrame, WireError> {
    let frame = decode(bytes)?;
    if let ServerFrame::Hello(hello) = &frame {
        check_hello(hello)?;
    }
    Ok(frame)
}

/// Writes a frame, its length included, ready for one single write.
///
/// # Errors
/// [`WireError::TooLarge`] if it takes more than `max` bytes; the other side would not read it.
pub fn encode(frame: &impl Serialize, max: usize) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, frame).map_err(|error| WireError::Malformed(error.to_string()))?;
    let size = bytes.len().saturating_sub(HEADER);
    let length = u32::try_from(size).ok().filter(|_| size <= max).ok_or(WireError::TooLarge { size, max })?;
    if let Some(header) = bytes.first_chunk_mut::<HEADER>() {
        *header = length.to_be_bytes();
    }
    Ok(bytes)
}

/// The id of a request that could not be understood otherwise, so that its refusal finds whoever waits for it.
pub(super) fn req_id_in(bytes: &[u8]) -> ReqId {
    #[derive(Deserialize)]
    struct Loose {
        request: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        req_id: ReqId,
    }
    serde_json::from_slice::<Loose>(bytes).map_or_else(|_| no_request(), |loose| loose.request.req_id)
}

/// Text from outside in one bounded line, control characters escaped.
pub(super) fn one_line(text: &str) -> String {
    bounded(text, MAX_COMPLAINT)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(bytes).map_err(|error| WireError::Malformed(one_line(&error.to_string())))
}

/// Nothing that a client says is a list; but serde would also take a structure's values in order, without their names.
fn has_list(bytes: &[u8]) -> bool {
    let (mut in_text, mut escaped) = (false, false);
    bytes.iter().any(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' if !in_text => return true,
            _ => {}
        }
        false
    })
}

fn check_hello(hello: &Hello) -> Result<(), WireError> {
    if hello.version.chars().count() > MAX_VERSION || !hello.version.chars().all(|c| c.is_ascii_graphic()) {
        return Err(WireError::Malformed(format!(
            "`version` is not at most {MAX_VERSION} printable characters"
        )));
    }
    Ok(())
}

/// The reading side of a connection: what has arrived and is not yet a frame.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    begun: Option<Instant>,
}

impl FrameReader {
    /// The next frame without its length, or `None` when the other side has ended the connection between two frames.
    ///
    /// Cancel safe: whatever has arrived stays in `self`, and the deadline of a frame that was begun keeps running.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] before a byte of such a frame is stored, [`WireError::Malformed`] for an empty one,
    /// [`WireError::TooSlow`] if it takes longer than [`FRAME_DEADLINE`], and what the connection itself reports.
    pub async fn next<R>(&mut self, from: &mut R, max: usize) -> Result<Option<Vec<u8>>, WireError>
    where
        R: AsyncRead + Unpin + ?Sized,
    {
        loop {
            let missing = match self.announced(max)? {
                Some(length) => match self.take(length) {
                    Some(frame) => return Ok(Some(frame)),
                    None => (HEADER + length).saturating_sub(self.buffer.len()),
                },
                None => READ_STEP,
            };
            self.buffer.reserve(missing.min(READ_STEP));
            let read = from.read_buf(&mut self.buffer);
            let count = match self.begun {
                None => read.await?,
                Some(begun) => {
                    timeout_at(begun + FRAME_DEADLINE, read).await.map_err(|_| WireError::TooSlow)??
                }
            };
            if count == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(WireError::Truncated) };
            }
            self.begun.get_or_insert_with(Instant::now);
        }
    }

    /// The length of the frame at hand, once its four bytes are there.
    fn announced(&self, max: usize) -> Result<Option<usize>, WireError> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
        match u32::from_be_bytes(*header).try_into() {
            Ok(0) => Err(WireError::Malformed("it is empty".to_owned())),
            Ok(size) if size <= max => Ok(Some(size)),
            Ok(size) => Err(WireError::TooLarge { size, max }),
            Err(_) => Err(WireError::TooLarge { size: usize::MAX, max }),
        }
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let frame = self.buffer.get(HEADER..HEADER + length)?.to_vec();
        self.buffer.drain(..HEADER + length);
        if self.buffer.capacity() > 4 * READ_STEP {
            self.buffer.shrink_to(READ_STEP);
        }
        // The rest, if any, is the beginning of the next frame.
        self.begun = (!self.buffer.is_empty()).then(Instant::now);
        Some(frame)
    }
}

#[cfg(test)]
mod tests;
