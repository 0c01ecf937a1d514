//! Bytes of a stream that inrush itself writes between objects: headers and padding of records,
//! values of a manifest. Immutable, shared, at most [`INLINE_BYTES_MAX`].

use std::sync::Arc;

use crate::limits::INLINE_BYTES_MAX;

/// Up to this length they are stored inline: the end of one record and the header of the next.
const SHORT_BYTES_MAX: usize = 22;

/// Bytes for the reader of a stream; never empty.
#[derive(Debug, Clone)]
pub struct InlineBytes(Form);

#[derive(Debug, Clone)]
enum Form {
    Short { bytes: [u8; SHORT_BYTES_MAX], length: u8 },
    Shared(Arc<[u8]>),
}

impl InlineBytes {
    /// Copies these bytes.
    ///
    /// # Panics
    /// If there are none, or more than [`INLINE_BYTES_MAX`].
    #[must_use]
    pub fn new(given: &[u8]) -> Self {
        assert!((1..=INLINE_BYTES_MAX).contains(&given.len()), "{} bytes", given.len());
        if given.len() > SHORT_BYTES_MAX {
            return Self(Form::Shared(Arc::from(given)));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..given.len()].copy_from_slice(given);
        Self(Form::Short { bytes, length: u8::try_from(given.len()).expect("a few") })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short { bytes, length } => &bytes[..usize::from(*length)],
            Form::Shared(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_was_given() {
        for length in [1, 8, 11, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 4096, INLINE_BYTES_MAX] {
            let given: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            assert_eq!(InlineBytes::new(&given).bytes(), given, "{length}");
        }
        assert!(size_of::<InlineBytes>() <= 24, "as small as a range of an object");
    }
}
