//! Idle connections of the control plane, held for a short time for the next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep};

use crate::control::client::HttpConnection;
use crate::control::limits::{IDLE_CONNECTIONS_MAX, IDLE_TIME};
use crate::s3::Endpoint;

/// All idle connections.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Arc<Mutex<IdleList>>);

#[derive(Debug, Default)]
struct IdleList {
    all: Vec<Idle>,
    /// A task closes those that are idle too long.
    is_watched: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    host: String,
    tls: bool,
    connection: HttpConnection,
}

impl IdleConnections {
    /// Takes an open connection to this endpoint.
    pub(super) fn take(&self, endpoint: &Endpoint) -> Option<HttpConnection> {
        let idle = &mut lock(&self.0).all;
        idle.retain(|idle| !idle.connection.sender.is_closed());
        let fits = |idle: &Idle| idle.host == endpoint.host && idle.tls == endpoint.tls;
        let at = idle.iter().position(fits)?;
        Some(idle.swap_remove(at).connection)
    }

    /// Adds a connection for the next request.
    pub(super) fn put(&self, endpoint: &Endpoint, connection: HttpConnection) {
        let mut idle = lock(&self.0);
        if idle.all.len() == IDLE_CONNECTIONS_MAX {
            idle.all.remove(0);
        }
        let (since, host) = (Instant::now(), endpoint.host.clone());
        idle.all.push(Idle { since, host, tls: endpoint.tls, connection });
        if !std::mem::replace(&mut idle.is_watched, true) {
            drop(tokio::spawn(close_idle(Arc::clone(&self.0))));
        }
    }
}

fn lock(idle: &Mutex<IdleList>) -> MutexGuard<'_, IdleList> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes connections that are idle too long, until there are none: a server with a limit of
/// connections then has room for the data plane's.
async fn close_idle(idle: Arc<Mutex<IdleList>>) {
    loop {
        sleep(IDLE_TIME).await;
        let mut idle = lock(&idle);
        idle.all.retain(|idle| idle.since.elapsed() < IDLE_TIME);
        if idle.all.is_empty() {
            idle.is_watched = false;
            return;
        }
    }
}
