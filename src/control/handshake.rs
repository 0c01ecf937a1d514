//! HTTP/1 on a socket that leads to a server, by hyper.

use bytes::Bytes;
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::client::{BoxError, Trouble, passing};
use super::limits::ANSWER_BUFFER_BYTES_MAX;
use crate::limits::HEADERS_MAX;

/// Begins; who drops the sender ends the connection.
///
/// # Errors
/// When the socket fails at once.
pub(super) async fn handshake<S, B>(stream: S) -> Result<SendRequest<B>, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(ANSWER_BUFFER_BYTES_MAX);
    // As of answers with data (`link::http`).
    builder
        .ignore_invalid_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true);
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| passing(&error))?;
    // It ends when the sender is dropped; what goes wrong in it the sender is told.
    tokio::spawn(connection);
    Ok(sender)
}
