//! Starts HTTP/1 on a connected socket, with hyper.

use bytes::Bytes;
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::control::client::{BoxError, Trouble, passing};
use crate::control::limits::ANSWER_BUFFER_BYTES_MAX;
use crate::limits::HEADERS_MAX;

/// Starts; dropping the sender closes the connection.
///
/// # Errors
/// If the socket fails at once.
pub(in crate::control) async fn handshake<S, B>(stream: S) -> Result<SendRequest<B>, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(ANSWER_BUFFER_BYTES_MAX);
    // Like the data plane's answers (`link::http`).
    builder
        .ignore_invalid_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true);
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| passing(&error))?;
    // It ends when the sender is dropped; the sender returns its errors.
    tokio::spawn(connection);
    Ok(sender)
}
