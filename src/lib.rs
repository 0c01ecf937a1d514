//! inrush fills a training instance from S3 at line rate.
