//! A destination: how downloads become files, how complete files are published, and what an earlier
//! run left.

pub mod cache;
pub mod file_download;
pub mod host;
pub mod journal;
pub mod mark;
pub mod sink;
pub mod system_host;
pub mod whole_file;
