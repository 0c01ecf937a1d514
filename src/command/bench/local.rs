//! Stages that need no objects: writes to a disk, encryption and checksums in memory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use memmap2::MmapMut;
use rustix::fs::{Mode, OFlags};

use super::now;
use crate::checksum::{Algorithm, Hasher};
use crate::report::bench::Measured;
use crate::sys::usage::thread_cpu_seconds;

/// Bytes of one write.
const BLOCK_BYTES: usize = 1 << 20;
/// Threads that write, each to its own file.
const WRITERS: u64 = 8;
/// Bytes of a TLS record.
const RECORD_BYTES: usize = 16 << 10;
/// Most bytes that are encrypted or checksummed: the work repeats.
pub(super) const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Writes files of this total size, past the page cache or through it, and waits until all are on
/// disk.
pub(super) fn write(
    folder: &Path,
    bytes: u64,
    direct: bool,
    stopped: &AtomicBool,
) -> io::Result<Measured> {
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
    let next = AtomicU64::new(0);
    let begun = now();
    let cpu = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS.min(blocks))
            .map(|number| {
                let (path, next) = (folder.join(number.to_string()), &next);
                scope.spawn(move || write_one(&path, direct, (next, blocks), stopped))
            })
            .collect();
        let ended = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        ended.sum::<io::Result<f64>>()
    })?;
    let written = blocks * BLOCK_BYTES as u64;
    Ok(Measured::new(written, begun.elapsed().as_secs_f64(), cpu))
}

/// Takes blocks while there are any, and writes them one after another.
fn write_one(
    path: &Path,
    direct: bool,
    (next, blocks): (&AtomicU64, u64),
    stopped: &AtomicBool,
) -> io::Result<f64> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let flags = if direct { flags | OFlags::DIRECT } else { flags };
    let file: OwnedFd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
    // A mapping is page-aligned, as O_DIRECT requires.
    let mut block = MmapMut::map_anon(BLOCK_BYTES)?;
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = index.to_le_bytes()[0] ^ index.to_le_bytes()[1];
    }
    let mut offset = 0;
    while next.fetch_add(1, Ordering::Relaxed) < blocks && !stopped.load(Ordering::Relaxed) {
        let mut done = 0;
        while done < BLOCK_BYTES {
            match rustix::io::pwrite(&file, &block[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        offset += BLOCK_BYTES as u64;
    }
    rustix::fs::fdatasync(&file)?;
    Ok(thread_cpu_seconds())
}

/// Encrypts this many bytes, with the cipher and the library of the data plane, as repeated
/// records. Decryption takes as long.
pub(super) fn encrypt(bytes: u64, stopped: &AtomicBool) -> Measured {
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("a key of its length");
    let key = LessSafeKey::new(key);
    let mut record = vec![1; RECORD_BYTES];
    work(bytes, RECORD_BYTES, stopped, || {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record);
        let _ = std::hint::black_box(sealed.expect("a record is short"));
    })
}

/// Computes the checksum of this many bytes, with S3's default algorithm.
pub(super) fn sum(bytes: u64, stopped: &AtomicBool) -> Measured {
    let block = vec![1; BLOCK_BYTES];
    let mut hasher = Hasher::new(Algorithm::Crc64Nvme);
    let measured = work(bytes, BLOCK_BYTES, stopped, || hasher.update(&block));
    let _ = std::hint::black_box(hasher.finish());
    measured
}

fn work(bytes: u64, each: usize, stopped: &AtomicBool, mut one: impl FnMut()) -> Measured {
    let (begun, cpu) = (now(), thread_cpu_seconds());
    let mut done = 0;
    while done < bytes && !stopped.load(Ordering::Relaxed) {
        one();
        done += each as u64;
    }
    Measured::new(done, begun.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu)
}
