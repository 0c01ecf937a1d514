//! The in-repo origin with some objects and one pair of keys, on loopback, in the test's process.

#[path = "open_files.rs"]
mod open_files;

use inrush_origin::{Config, Credentials, ObjectContent, ObjectSpec, Origin};

use crate::matrix::Objects;
use crate::program::Program;

/// The bucket of every test.
pub(crate) const BUCKET: &str = "lab";
/// The access key that the origin knows.
pub(crate) const ACCESS_KEY: &str = "AKIDLAB";
/// Its secret.
pub(crate) const SECRET: &str = "lab/secret+key";

/// An object of these bytes.
pub(crate) fn object(key: &str, bytes: Vec<u8>) -> ObjectSpec {
    ObjectSpec::new(BUCKET, key, ObjectContent::Bytes(bytes.into()))
}

/// What an origin of these objects is started with.
pub(crate) fn config(objects: &Objects) -> Config {
    Config {
        objects: objects.iter().map(|(key, bytes)| object(key, bytes.clone())).collect(),
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        ..Config::default()
    }
}

/// Starts an origin, which may have as many connections as the hard limit of open files allows.
pub(crate) fn start(config: Config) -> Origin {
    open_files::allow_all();
    Origin::start(config).expect("an origin on loopback")
}

/// Serves these objects.
pub(crate) fn serve(objects: &Objects) -> Origin {
    start(config(objects))
}

/// `inrush get` of these words from the origin, quietly, with its keys.
pub(crate) fn get<W: AsRef<std::ffi::OsStr>>(
    origin: &Origin,
    words: impl IntoIterator<Item = W>,
) -> Program {
    let program = Program::new(["get", "--quiet"]).with(words).asking(origin);
    program.with_keys(ACCESS_KEY, SECRET)
}
