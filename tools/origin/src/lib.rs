//! An S3-compatible, read-only origin.
