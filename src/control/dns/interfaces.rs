//! The network interfaces that the user named: checks that they exist and reach a server, and
//! connects over one of them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::control::limits::{CONNECT_TIMEOUT, CONNECT_WAITS_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::INTERFACES_MAX;
use crate::s3::Endpoint;
use crate::sys::topology::{Interface, interfaces, node_of};
use crate::sys::{Errno, descriptor};

/// The interfaces of these names.
///
/// # Errors
/// [`ErrorKind::Usage`] if this machine has no interface of a name, or one is named twice.
pub fn named(names: &[String]) -> Result<Vec<Interface>> {
    let root = Path::new("/");
    let known = if names.is_empty() { Vec::new() } else { interfaces(root) };
    if names.len() > INTERFACES_MAX {
        let message = format!("{} times --interface is too often", names.len());
        return Err(
            Error::new(ErrorKind::Usage, message).advise(format!("name at most {INTERFACES_MAX}"))
        );
    }
    for (number, name) in names.iter().enumerate() {
        if names[..number].contains(name) {
            let message = format!("--interface {name} is given twice");
            return Err(Error::new(ErrorKind::Usage, message).advise("name each interface once"));
        }
        if !known.contains(name) {
            let message = format!("--interface {name}: there is no such network interface");
            let known = match &known[..] {
                [] => "the kernel lists none (/proc/net/dev)".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            return Err(Error::new(ErrorKind::Usage, message).advise(known));
        }
    }
    let found = names
        .iter()
        .map(|name| Interface { name: name.as_str().into(), node: node_of(root, name) });
    Ok(found.collect())
}

/// The kernel does not allow this process to choose an interface.
#[derive(Debug)]
struct NotAllowed;

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this process may not choose an interface (SO_BINDTODEVICE)")
    }
}

impl std::error::Error for NotAllowed {}

/// The result of binding to an interface; only its own EPERM is [`NotAllowed`], because connect(2)
/// may return EPERM, too.
fn bound(outcome: std::result::Result<(), Errno>) -> io::Result<()> {
    outcome.map_err(|errno| {
        let error = io::Error::from_raw_os_error(errno.number());
        match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(error.kind(), NotAllowed),
            _ => error,
        }
    })
}

/// The error of a connection over this interface that no later try can cure; `None` for others.
/// Descriptors that other processes hold (ENFILE) may become free.
pub(in crate::control) fn lasting(error: &io::Error, interface: Option<&str>) -> Option<Error> {
    if error.raw_os_error() == Some(libc::EMFILE) {
        let message = format!("cannot open a connection: {error}");
        return Some(
            Error::new(ErrorKind::Host, message)
                .advise("raise the limit of open files (ulimit -n)"),
        );
    }
    let name = interface?;
    let inner = error.get_ref()?.downcast_ref::<NotAllowed>()?;
    Some(Error::new(ErrorKind::Host, format!("--interface {name}: {inner}")).advise(
        "before Linux 5.7 that takes CAP_NET_RAW: give it (setcap cap_net_raw=ep on the program, \
         or --cap-add NET_RAW), or leave --interface out",
    ))
}

/// Connects, over this interface if there is one.
///
/// # Errors
/// Those of socket(2), setsockopt(2) and connect(2).
pub(in crate::control) async fn connect(
    address: SocketAddr,
    interface: Option<&str>,
) -> io::Result<TcpStream> {
    let Some(name) = interface else { return TcpStream::connect(address).await };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    bound(descriptor::bind_to_interface(socket.as_fd(), name))?;
    socket.connect(address).await
}

/// Finds an interface that does not reach the endpoint while another does, before any byte is
/// transferred: ranges requested over it would only fail.
///
/// # Errors
/// [`ErrorKind::Endpoint`], with its name.
pub(in crate::control) async fn try_each(all: &[Interface], endpoint: &Endpoint) -> Result<()> {
    // A single interface is tried by the first request, with its retries.
    if all.len() < 2 {
        return Ok(());
    }
    let addresses = endpoint.addresses();
    let mut tries = JoinSet::new();
    for (number, interface) in all.iter().enumerate() {
        let (name, addresses) = (Arc::clone(&interface.name), addresses.clone());
        tries.spawn(async move { (number, reach(&name, &addresses).await) });
    }
    let mut failed: Vec<(usize, String)> = Vec::new();
    while let Some(tried) = tries.join_next().await {
        let (number, outcome) = tried.map_err(|_| Error::bug("an interface's try panicked"))?;
        failed.extend(outcome.err().map(|why| (number, why)));
    }
    // If none does, the server is down, and is retried for the time of --retry-for.
    if failed.len() == all.len() {
        return Ok(());
    }
    let Some((number, why)) = failed.into_iter().min() else { return Ok(()) };
    let name = &all[number].name;
    let message = format!("{} is not reached over the interface {name}: {why}", endpoint.host);
    Err(Error::new(ErrorKind::Endpoint, message).advise(format!(
        "check its address and routes (ip address show {name}; ip route show table all), or leave \
         it out"
    )))
}

/// Tries to reach one of these addresses over this interface; a refused connection counts as
/// reached. The error is the reason.
async fn reach(name: &str, addresses: &[SocketAddr]) -> std::result::Result<(), String> {
    let mut last = "there is no address".to_owned();
    for address in addresses.iter().take(CONNECT_WAITS_MAX) {
        match timeout(CONNECT_TIMEOUT, connect(*address, Some(name))).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Ok(Err(error)) => last = format!("{address}: {error}"),
            Err(_) => {
                let seconds = CONNECT_TIMEOUT.as_secs();
                last = format!("{address}: no connection within {seconds} s");
            }
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, run};

    #[test]
    fn names_are_looked_up_before_anything_moves() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            named(&names)
        };
        assert_eq!(of(&[]).expect("nothing is asked for"), []);
        let found = of(&["lo"]).expect("every machine has one");
        assert_eq!((&*found[0].name, found[0].node), ("lo", None));
        for (names, expected) in [
            (&["lo", "none9"][..], "--interface none9: there is no such network interface; there"),
            (&["lo", "lo"], "--interface lo is given twice"),
            (&["lo"; INTERFACES_MAX + 1], "times --interface is too often"),
        ] {
            let error = of(names).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn an_interface_that_leads_nowhere_is_found() {
        let server = Server::start(|_| Reply::new(200, ""));
        let interface = |name: &str| Interface { name: name.into(), node: None };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![server.address]);
        run(async {
            let lo = interface("lo");
            let gone = interface("gone0");
            assert_eq!(try_each(&[lo.clone(), lo.clone()], &endpoint).await.ok(), Some(()));
            let error = try_each(&[lo, gone.clone()], &endpoint).await.expect_err("no such device");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            let line = error.to_string();
            assert!(line.contains("over the interface gone0: 127.0.0.1:"), "{line}");
            assert!(line.contains("No such device"), "{line}");
            let none = try_each(&[gone.clone(), gone.clone()], &endpoint).await;
            assert_eq!(none.ok(), Some(()), "then it is the server");
            assert_eq!(try_each(&[gone], &endpoint).await.ok(), Some(()), "and alone");
        });
    }

    #[test]
    fn a_kernel_that_allows_no_choice_is_not_asked_again() {
        let refused = |number| {
            let errno = Errno::from(io::Error::from_raw_os_error(number));
            bound(Err(errno)).expect_err("refused")
        };
        let error = lasting(&refused(libc::EPERM), Some("eth7")).expect("it stays so");
        let message = error.to_string();
        assert!(
            message.contains("--interface eth7") && message.contains("CAP_NET_RAW"),
            "{message}"
        );
        assert_eq!(error.kind(), ErrorKind::Host);
        assert_eq!(lasting(&refused(libc::ENODEV), Some("eth7")), None, "it may come back");
        let filtered = io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(lasting(&filtered, Some("eth7")), None, "of connect(2)");
    }

    #[test]
    fn a_process_without_descriptors_does_not_wait_for_a_server() {
        for interface in [None, Some("eth7")] {
            let error = lasting(&io::Error::from_raw_os_error(libc::EMFILE), interface);
            let error = error.expect("it stays so");
            assert_eq!(error.kind(), ErrorKind::Host);
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
        let of_machine = io::Error::from_raw_os_error(libc::ENFILE);
        assert_eq!(lasting(&of_machine, None), None, "others may close some");
    }

    #[test]
    fn a_connection_goes_over_its_interface() {
        let server = Server::start(|_| Reply::new(200, ""));
        run(async {
            connect(server.address, Some("lo")).await.expect("loopback");
            let error = connect(server.address, Some("gone0")).await.expect_err("no such device");
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        });
    }
}
