//! Threads that libraries start.

use std::any::Any;
use std::panic::{UnwindSafe, catch_unwind, set_hook, take_hook};

use super::process_state::IS_STARTING;

/// Hides the messages of panics in [`start_in_library`] from now on. Only for the owner of the
/// process: all threads share one hook.
pub fn hide_refusals() {
    let previous = take_hook();
    set_hook(Box::new(move |panic| {
        if !IS_STARTING.get() {
            previous(panic);
        }
    }));
}

/// Runs code that starts a thread in a library, which panics if the system has no thread left.
///
/// # Errors
/// The message of the library's panic.
pub fn start_in_library<T>(start: impl FnOnce() -> T + UnwindSafe) -> Result<T, String> {
    IS_STARTING.set(true);
    let started = catch_unwind(start);
    IS_STARTING.set(false);
    started.map_err(|payload| reason(&*payload))
}

/// The operating system's part of the message.
fn reason(payload: &(dyn Any + Send)) -> String {
    let said = payload.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("refused");
    said.split_once(": ").map_or(said, |(_, why)| why).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_reason() {
        assert_eq!(start_in_library(|| 7), Ok(7));
        let errno = std::io::Error::from_raw_os_error(libc::EAGAIN).to_string();
        let refused = start_in_library(|| panic!("OS can't spawn worker thread: {errno}"));
        assert_eq!(refused, Err::<(), _>(errno.clone()));
        assert_eq!(start_in_library(|| panic!("gone")), Err::<(), _>("gone".to_owned()));
        assert!(!IS_STARTING.get());
    }
}
