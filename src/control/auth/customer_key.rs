//! Reads the customer's key of SSE-C from a file or the environment.

use std::path::Path;

use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::headers::{CUSTOMER_KEY_TEXT_BYTES_MAX, CustomerKey};

/// The variable with the customer's key of SSE-C as base64, used without a file. No secret is given
/// on a command line.
const VARIABLE: &str = "INRUSH_SSE_C_KEY";

/// The customer's key of SSE-C: the file's, else the environment's; `None` if there is none.
///
/// # Errors
/// [`ErrorKind::Usage`] for a file that cannot be read, and for an invalid key.
pub fn customer_key(file: Option<&Path>) -> Result<Option<CustomerKey>> {
    let Some(path) = file else {
        let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let text = Zeroizing::new(text.into_encoded_bytes());
        let key = CustomerKey::from_text(std::str::from_utf8(&text).unwrap_or_default());
        return key.map(Some).map_err(|error| error.within(VARIABLE));
    };
    let bytes = read_start(path).map_err(|errno| {
        Error::new(ErrorKind::Usage, format!("cannot read {}: {errno}", path.display()))
            .advise("give the file with the SSE-C key")
            .caused_by(std::io::Error::from(errno))
    })?;
    CustomerKey::from_file(&bytes).map(Some).map_err(|error| error.within(path.display()))
}

/// The start of the file: the longest key, and one byte more to notice a longer one.
fn read_start(path: &Path) -> rustix::io::Result<Zeroizing<Vec<u8>>> {
    use rustix::fs::{Mode, OFlags, open};
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Zeroizing::new(vec![0; CUSTOMER_KEY_TEXT_BYTES_MAX + 1]);
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::read(&file, &mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
