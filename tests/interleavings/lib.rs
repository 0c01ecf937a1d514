//! What threads share, in all orders that they can take: sources of inrush over loom's types.
//!
//! `tools/check.py interleavings` copies these files and the sources that are named below into a
//! crate of their own, puts [`sync`] in the place of `std::sync`, and runs the models as tests.

pub mod error;
pub mod limits;
mod models;
mod stand_ins;
pub mod sync;

pub mod engine {
    pub mod backlog;
    pub mod budget;
    pub mod endpoints;
    pub use crate::stand_ins::{gunzip, metrics};
    pub mod handover;
    pub mod lease;
    pub mod pace;
    pub mod peers {
        pub mod addresses;
        pub mod served;
    }
    pub mod request;
    pub mod schedule;
    pub mod snapshot;
    pub mod stream {
        pub mod feed;
        pub mod inflate;
        pub mod inline;
    }
    pub mod threads {
        pub mod agreement;
        pub use crate::stand_ins::no_ring;
    }
}

pub mod files {
    pub use crate::stand_ins::file_download;
}

pub mod library {
    pub use crate::stand_ins::download;
    pub mod feed;
}

pub mod link {
    pub use crate::stand_ins::{failure, object};
    pub mod waiting;
}

pub mod mount {
    pub mod serving {
        pub mod mailbox;
    }
}

pub mod plan {
    pub mod ranges;
}

pub mod s3 {
    pub use crate::stand_ins::s3::*;
    pub mod redirect;
    pub mod sign {
        pub mod keys;
    }
}

pub mod sys {
    pub mod loan;
    pub mod pool;
    pub mod slot;
    pub use crate::stand_ins::sys::*;
    pub use loan::{Lender, Loan, Place};
    pub use pool::{Pool, Region};
    pub use slot::Slot;
    pub mod readiness {
        pub use crate::stand_ins::sys::{Errno, Op, OwnedFd, owned, short};
        pub mod writers;
    }
}

/// True if this fault was planted, to see that a model notices it.
pub fn planted(name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("INTERLEAVINGS_PLANT").ok());
    planted.as_deref() == Some(name)
}
