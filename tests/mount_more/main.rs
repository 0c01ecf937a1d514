//! `inrush mount` with awkward trees, against a model, with a cache, where objects do not stay what
//! they were listed as, over both transports, and what it reports of a run.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "programs under test")]

#[path = "../common/fuse.rs"]
mod fuse;
#[path = "../common/mapper.rs"]
mod mapper;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/mounted.rs"]
#[expect(dead_code, reason = "its folder belongs to other tests")]
mod mounted;
#[path = "../common/names.rs"]
mod names;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "homes and kills belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "get belongs to other tests")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

mod awkward;
mod bounded;
mod cache;
mod helper;
mod lazy;
mod model;
mod page_cache;
mod refresh;
mod replaced;
mod report;
mod slow;
mod transport;
