//! RecordIO as MXNet frames it: a stream of records with a header each.
//!
//! A record is the magic number and a word, both little-endian 32-bit, its bytes, and zeros up to a
//! multiple of four. The word's lower 29 bits are the length; the upper three are 0 for a record in
//! one piece, and mark the first, middle or last piece of a split record (dmlc-core,
//! `include/dmlc/recordio.h`). Readers join split records in two contradictory ways, or not at all,
//! so records here are always one piece, and their bytes need not be examined.

/// First word of every record.
pub const MAGIC: u32 = 0xced7_230a;

/// Length of a record's header.
pub const HEADER_BYTES: usize = 8;

/// Longest record in one piece, in bytes.
pub const RECORD_BYTES_MAX: u64 = (1 << 29) - 1;

/// The header of a record of this length; `None` if it is too long.
#[must_use]
pub fn header(length_bytes: u64) -> Option<[u8; HEADER_BYTES]> {
    let length = u32::try_from(length_bytes).ok().filter(|_| length_bytes <= RECORD_BYTES_MAX)?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..].copy_from_slice(&length.to_le_bytes());
    Some(header)
}

/// The padding after it.
#[must_use]
pub fn padding(length_bytes: u64) -> &'static [u8] {
    [&[], &[0; 3][..], &[0; 2], &[0; 1]][(length_bytes % 4) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_framed_as_described() {
        assert_eq!(header(0), Some([0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0]));
        assert_eq!(header(0x0102_0304), Some([0x0a, 0x23, 0xd7, 0xce, 4, 3, 2, 1]));
        assert_eq!(header(RECORD_BYTES_MAX).map(|header| header[7]), Some(0x1f));
        assert_eq!((header(1 << 29), header(1 << 32), header(u64::MAX)), (None, None, None));
        let lengths = [0, 1, 2, 3, 4, 5, 6, 7, RECORD_BYTES_MAX].map(|length| {
            assert!(padding(length).iter().all(|byte| *byte == 0));
            padding(length).len()
        });
        assert_eq!(lengths, [0, 3, 2, 1, 0, 3, 2, 1, 1]);
    }
}
