//! One connection, whatever carries it, as whole frames.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::codec::{FRAME_DEADLINE, FrameReader, WireError};

/// How long a closing side lets the other one read the last word, at most. Closing with unread bytes in the kernel
/// makes it send a reset, and that may destroy the refusal on its way.
const FAREWELL: Duration = Duration::from_secs(1);
/// How much of what the other side still sends is thrown away meanwhile, in bytes.
const FAREWELL_BYTES: usize = 64 * 1024;

/// Anything that carries bytes both ways: TLS over TCP, or the unix socket.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// A connection that is read and written in whole frames. One task owns it: reading is cancel safe, so it reads in a
/// `select!` and writes between two passes.
pub(super) struct Channel {
    carrier: Box<dyn Carrier>,
    reader: FrameReader,
    max: usize,
}

impl Channel {
    /// A channel that reads frames of at most `max` bytes.
    pub(super) fn new(carrier: Box<dyn Carrier>, max: usize) -> Self {
        Self { carrier, reader: FrameReader::default(), max }
    }

    /// The next frame; cancel safe (see [`FrameReader::next`]).
    pub(super) async fn read(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        self.reader.next(&mut self.carrier, self.max).await
    }

    /// Writes one encoded frame. Not cancel safe; but it ends within [`FRAME_DEADLINE`], also if nobody reads.
    pub(super) async fn write(&mut self, frame: &[u8]) -> Result<(), WireError> {
        let carrier = &mut self.carrier;
        let written = async {
            carrier.write_all(frame).await?;
            carrier.flush().await
        };
        Ok(timeout(FRAME_DEADLINE, written).await.map_err(|_| WireError::NotTaken)??)
    }

    /// Ends the sending side in good order, so that the other one knows that nothing was lost.
    pub(super) async fn end(&mut self) {
        // If it fails, the connection has ended in bad order, and nothing is left to be done.
        let _ = self.carrier.shutdown().await;
    }

    /// Ends the sending side and waits a moment for the other side to read and close.
    pub(super) async fn close(mut self) {
        let rest = async {
            if self.carrier.shutdown().await.is_err() {
                return;
            }
            let (mut scrap, mut total) = ([0; 512], 0_usize);
            while let Ok(count @ 1..) = self.carrier.read(&mut scrap).await {
                total = total.saturating_add(count);
                if total > FAREWELL_BYTES {
                    break;
                }
            }
        };
        // Whatever came of it, the connection ends here.
        let _ = timeout(FAREWELL, rest).await;
    }
}
