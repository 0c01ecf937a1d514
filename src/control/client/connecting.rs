//! A connection to a server: TCP, the tunnel of a proxy, TLS, and HTTP on it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use hyper::client::conn::http1::SendRequest;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::info;

use super::handshake::handshake;
use super::{BoxError, Trouble};
use crate::control::dns::interfaces;
use crate::error::{Error, ErrorKind};
use crate::link::attempt::Cause;
use crate::link::failure::{Failure, RetryReason};
use crate::link::http::HeadError;
use crate::link::tls::explain::explain as explain_tls;
use crate::s3::Endpoint;
use crate::sys::topology::Over;

/// Connects to this address of the endpoint or of its proxy; `tls` is the TLS configuration, if
/// used. Over this network interface, if there is one.
pub(in crate::control) async fn open<B>(
    endpoint: &Endpoint,
    address: SocketAddr,
    interface: Option<&str>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<SendRequest<B>, Trouble>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let over = Over(interface);
    let at = |reason, error: std::io::Error| {
        let why = format!("{address}{over}: {error}");
        let why = Error::new(ErrorKind::Endpoint, why).caused_by(error);
        Trouble::Passing(Cause::Unreachable, reason, why)
    };
    let not_there = |error| at(RetryReason::Connect, error);
    let stream =
        interfaces::connect(address, interface).await.map_err(
            |error| match interfaces::lasting(&error, interface) {
                Some(lasting) => Trouble::Lasting(lasting),
                None => not_there(error),
            },
        )?;
    stream.set_nodelay(true).map_err(not_there)?;
    let Some(config) = tls else { return handshake(stream).await };
    let stream = tunnel(endpoint, stream).await?;
    let name = ServerName::try_from(endpoint.server_name().to_owned()).map_err(|_| {
        let message = format!("'{}' is not a valid name for TLS", endpoint.server_name());
        Trouble::Lasting(Error::new(ErrorKind::Usage, message))
    })?;
    let connector = TlsConnector::from(config);
    let stream = connector.connect(name, stream).await.map_err(|error| {
        let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls_error {
            Some(tls_error) => Trouble::Lasting(explain_tls(&endpoint.host, tls_error)),
            None => at(RetryReason::Tls, error),
        }
    })?;
    let session = stream.get_ref().1;
    let (version, suite) = (session.protocol_version(), session.negotiated_cipher_suite());
    info!(
        "TLS to {} ({address}): {version:?}, {:?}",
        endpoint.host,
        suite.map(|suite| suite.suite())
    );
    handshake(stream).await
}

/// Opens a tunnel through the proxy, if there is one, and returns the stream for TLS.
async fn tunnel(endpoint: &Endpoint, mut stream: TcpStream) -> Result<TcpStream, Trouble> {
    let (Some(proxy), Some(request)) = (&endpoint.proxy, endpoint.tunnel_request()) else {
        return Ok(stream);
    };
    let passing = |cause, why: &dyn std::fmt::Display| {
        let why = Error::new(ErrorKind::Endpoint, format!("the proxy {proxy}: {why}"));
        Trouble::Passing(cause, RetryReason::Proxy, why)
    };
    let at = |why: &dyn std::fmt::Display| passing(Cause::Unreachable, why);
    let wrong = |why: &dyn std::fmt::Display| passing(Cause::Faulty, why);
    stream.write_all(&request).await.map_err(|error| at(&error))?;
    let mut answer = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.map_err(|error| at(&error))?;
        if count == 0 {
            return Err(at(&"it hung up instead of answering"));
        }
        answer.extend_from_slice(&piece[..count]);
        let head = match crate::link::http::parse(&answer) {
            Ok(None) => continue,
            Ok(Some(head)) => head,
            Err(error @ (HeadError::TooManyHeaders | HeadError::TooLong)) => {
                let is_long = error == HeadError::TooLong;
                let failure = if is_long { Failure::HeadTooLong } else { Failure::TooManyHeaders };
                let message = format!("the proxy {proxy}: {failure}");
                return Err(Trouble::Lasting(Error::new(ErrorKind::Endpoint, message)));
            }
            Err(_) => return Err(wrong(&"its answer has no valid HTTP/1 header")),
        };
        return match head.status {
            200..300 if head.length as usize == answer.len() => Ok(stream),
            // A server over TLS does not speak first.
            ..300 => Err(wrong(&"its answer opens no tunnel")),
            status @ (408 | 429 | 500..) => {
                let cause = Cause::new(Failure::Proxy(status).is_unreachable(), false);
                Err(passing(cause, &format!("it answered {status}")))
            }
            status => Err(Trouble::Lasting(proxy.refusal(status, &endpoint.host))),
        };
    }
}
