//! How much of a server's reply is read: decided from the announced lengths, before anything is allocated for them.
//!
//! The library takes the server's word for every length, and Redis is not trusted. Each byte passes through [`Bounded`] first,
//! which follows the frames of RESP2 and ends the connection when one of them announces too much.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How deep replies may be nested. `COMMAND INFO` nests deepest of what is asked here: seven levels since Redis 7.
const MAX_DEPTH: usize = 16;
/// The longest line, in bytes: a status, an error or a number.
const MAX_LINE: usize = 4096;
/// How much of an error is kept for whoever finds the connection closed, in bytes.
const MAX_ERROR: usize = 200;
/// The most digits of a length: ten gigabytes are over every limit.
const MAX_DIGITS: usize = 10;

/// What is read of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The longest string, in bytes.
    pub string: usize,
    /// All that comes after one request, in bytes.
    pub reply: usize,
    /// The most values in one reply, however they are nested.
    pub values: usize,
}

/// Why nothing more is read from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// A string is too long.
    #[error("a string of {announced} bytes is announced, at most {limit} are read")]
    String {
        /// Its length.
        announced: usize,
        /// What is read.
        limit: usize,
    },
    /// An array has too many values, or all arrays of one reply together.
    #[error("more than {limit} values are announced in one reply")]
    Values {
        /// What is read.
        limit: usize,
    },
    /// The reply does not end.
    #[error("more than {limit} bytes came for one request")]
    Reply {
        /// What is read.
        limit: usize,
    },
    /// A line does not end.
    #[error("a line is longer than {MAX_LINE} bytes")]
    Line,
    /// Arrays in arrays.
    #[error("the reply is nested more than {MAX_DEPTH} deep")]
    Depth,
    /// It is not the protocol that was agreed upon.
    #[error("byte {0:#04x} stands where RESP2 has none such")]
    Odd(u8),
}

/// Where in a reply the scanner is.
#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a value.
    Value,
    /// In a line that is not a length; whether the last byte was CR.
    Line { length: usize, cr: bool },
    /// In the length of a string or an array.
    Length { of: u8, digits: usize, number: usize, minus: bool, cr: bool },
    /// In a string; how many bytes are missing, its CR LF included.
    String(usize),
}

/// Follows the frames of a server's replies.
#[derive(Debug)]
pub struct Scanner {
    limit: Limit,
    at: At,
    /// How many values each open array still lacks.
    open: Vec<usize>,
    values: usize,
    /// Since the last request.
    bytes: usize,
    /// Whether anything was asked yet.
    any: bool,
    /// An error that came before anything was asked, its first bytes.
    error: Vec<u8>,
    /// Whether the line that is read is one.
    in_error: bool,
}

impl Scanner {
    /// Before the first byte.
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            at: At::Value,
            open: Vec::new(),
            values: 0,
            bytes: 0,
            any: false,
            error: Vec::new(),
            in_error: false,
        }
    }

    /// What the server refused the connection with, before anything was asked; its first bytes.
    fn greeting(&self) -> Option<&[u8]> {
        (!self.in_error && !self.error.is_empty()).then(|| self.error.trim_ascii_end())
    }

    /// A request was sent.
    pub fn asked(&mut self) {
        self.any = true;
        self.bytes = 0;
    }

    /// The next bytes of the server.
    ///
    /// # Errors
    /// [`Excess`]; nothing more may be read then.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Excess> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.limit.reply {
            return Err(Excess::Reply { limit: self.limit.reply });
        }
        while let Some((byte, rest)) = bytes.split_first() {
            if let At::String(missing) = self.at {
                let here = missing.min(bytes.len());
                bytes = bytes.get(here..).unwrap_or_default();
                self.at = At::String(missing - here);
                if missing == here {
                    self.value_ends();
                }
                continue;
            }
            bytes = rest;
            self.step(*byte)?;
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<(), Excess> {
        match (self.at, byte) {
            (At::Value, b'+' | b'-' | b':') => {
                self.at = At::Line { length: 0, cr: false };
                self.in_error = byte == b'-' && !self.any;
            }
            (At::Value, b'$' | b'*') => {
                self.at = At::Length { of: byte, digits: 0, number: 0, minus: false, cr: false };
            }
            (At::Line { cr: true, .. }, b'\n') => {
                self.in_error = false;
                self.value_ends();
            }
            (At::Line { length, .. }, _) => {
                if length >= MAX_LINE {
                    return Err(Excess::Line);
                }
                self.at = At::Line { length: length + 1, cr: byte == b'\r' };
                if self.in_error && self.error.len() < MAX_ERROR {
                    self.error.push(byte);
                }
            }
            (At::Length { of, digits: 1.., number, minus, cr: true }, b'\n') => {
                self.length(of, number, minus)?;
            }
            (At::Length { of, digits, number, minus, cr: false }, _) => {
                self.at = match byte {
                    b'0'..=b'9' if digits < MAX_DIGITS => {
                        let number = number.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
                        At::Length { of, digits: digits + 1, number, minus, cr: false }
                    }
                    b'0'..=b'9' => return Err(self.announced(of, usize::MAX)),
                    b'-' if digits == 0 && !minus => {
                        At::Length { of, digits, number, minus: true, cr: false }
                    }
                    b'\r' => At::Length { of, digits, number, minus, cr: true },
                    _ => return Err(Excess::Odd(byte)),
                };
            }
            (At::Value | At::Length { .. } | At::String(_), _) => return Err(Excess::Odd(byte)),
        }
        Ok(())
    }

    fn announced(&self, of: u8, announced: usize) -> Excess {
        match of {
            b'$' => Excess::String { announced, limit: self.limit.string },
            _ => Excess::Values { limit: self.limit.values },
        }
    }

    /// A length was read.
    fn length(&mut self, of: u8, number: usize, minus: bool) -> Result<(), Excess> {
        match (of, minus, number) {
            // Nothing, and so is the null array.
            (_, true, 1) | (b'*', false, 0) => self.value_ends(),
            (_, true, _) => return Err(Excess::Odd(b'-')),
            (b'$', ..) if number > self.limit.string => return Err(self.announced(of, number)),
            (b'$', ..) => self.at = At::String(number + 2),
            (..) => {
                self.values = self.values.saturating_add(number);
                if self.values > self.limit.values {
                    return Err(self.announced(of, number));
                }
                if self.open.len() >= MAX_DEPTH {
                    return Err(Excess::Depth);
                }
                self.open.push(number);
                self.at = At::Value;
            }
        }
        Ok(())
    }

    /// A value is complete, and with it perhaps the arrays that it was the last of.
    fn value_ends(&mut self) {
        self.at = At::Value;
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open.pop();
        }
        self.values = 0;
    }
}

/// What became of a connection, for whoever waits for its answers.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// Why nothing more is read.
    pub(super) excess: OnceLock<Excess>,
    /// The error with which a server closed the connection before anything was asked, such as that it has too many clients. The
    /// library drops such an answer.
    pub(super) greeting: Mutex<Option<Vec<u8>>>,
}

/// A connection of which no more is read than a limit allows.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    scanner: Scanner,
    fate: Arc<Fate>,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, limit: Limit, fate: Arc<Fate>) -> Self {
        Self { stream, scanner: Scanner::new(limit), fate }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if read.is_err() || fresh.is_empty() {
            if let Ok(mut greeting) = this.fate.greeting.lock() {
                *greeting = this.scanner.greeting().map(<[u8]>::to_vec);
            }
            return Poll::Ready(read);
        }
        let taken = match this.fate.excess.get() {
            Some(excess) => Err(*excess),
            None => this.scanner.take(fresh),
        };
        Poll::Ready(taken.map_err(|excess| {
            let excess = *this.fate.excess.get_or_init(|| excess);
            io::Error::new(io::ErrorKind::InvalidData, excess)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.scanner.asked();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { string: 100, reply: 1_000, values: 10 };

    fn scan(text: &[u8]) -> Result<(), Excess> {
        // However the bytes are cut, the answer is the same.
        let whole = Scanner::new(LIMIT).take(text);
        let mut single = Scanner::new(LIMIT);
        let singly = text.chunks(1).try_for_each(|byte| single.take(byte));
        if !matches!(whole, Err(Excess::Reply { .. })) {
            assert_eq!(whole, singly, "{}", text.escape_ascii());
        }
        whole
    }

    #[test]
    fn replies_within_the_limit_pass() {
        for fine in [
            "+OK\r\n",
            "-ERR no\rsuch\nthing\r\n:7\r\n",
            "$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n",
            "*2\r\n$3\r\nab\n\r\n*3\r\n:1\r\n$-1\r\n*0\r\n+next\r\n",
            "$100\r\n",
        ] {
            assert_eq!(scan(fine.as_bytes()), Ok(()), "{fine:?}");
        }
    }

    #[test]
    fn what_announces_too_much_is_refused_at_its_announcement() {
        let string = |announced| Err(Excess::String { announced, limit: 100 });
        assert_eq!(scan(b"$101\r\n"), string(101));
        assert_eq!(scan(b"$536870912\r\n"), string(536_870_912));
        assert_eq!(scan(b"$99999999999999999999\r\n"), string(usize::MAX));
        assert_eq!(scan(b"*1\r\n$101\r\n"), string(101));
        let values = Err(Excess::Values { limit: 10 });
        assert_eq!(scan(b"*11\r\n"), values);
        assert_eq!(scan(b"*5\r\n*6\r\n"), values);
        assert_eq!(scan(b"*9999999999999\r\n"), values);
        assert_eq!(scan(&b"*1\r\n".repeat(20)), values);
        let deep = Limit { values: 1_000, ..LIMIT };
        assert_eq!(Scanner::new(deep).take(&b"*1\r\n".repeat(17)), Err(Excess::Depth));
        let wide = Limit { reply: 10_000, ..LIMIT };
        assert_eq!(Scanner::new(wide).take(&[b"+".as_slice(), &[b'x'; 5_000]].concat()), Err(Excess::Line));
    }

    #[test]
    fn what_is_not_resp2_is_refused() {
        for (odd, byte) in [
            (">2\r\n", b'>'),
            ("%1\r\n", b'%'),
            ("|1\r\n", b'|'),
            ("HTTP/1.1", b'H'),
            ("$-2\r\n", b'-'),
            ("$1\n", b'\n'),
            ("$\r\n", b'\n'),
            ("$ 1\r\n", b' '),
            ("$1\r1", b'1'),
        ] {
            assert_eq!(scan(odd.as_bytes()), Err(Excess::Odd(byte)), "{odd:?}");
        }
    }

    #[test]
    fn what_nobody_asked_for_ends_the_connection_in_the_end() {
        let mut scanner = Scanner::new(LIMIT);
        let mut flood = (0..).map(|_| scanner.take(b"+OK\r\n"));
        assert_eq!(flood.find_map(Result::err), Some(Excess::Reply { limit: 1_000 }));
        let mut scanner = Scanner::new(LIMIT);
        for _ in 0..1_000 {
            scanner.asked();
            scanner.take(b"+OK\r\n").unwrap();
        }
    }
}
