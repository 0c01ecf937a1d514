//! Shorter queues of a ring when memory is short: some kernels count queues towards RLIMIT_MEMLOCK.

/// Shortest submission queue; more operations are submitted in several calls.
const ENTRIES_MIN: u32 = 64;

/// Shortest completion queue, twice as long: completions that do not fit go to the kernel's own
/// memory, and block submissions until they are read.
const COMPLETIONS_MIN: u32 = ENTRIES_MIN * 2;

/// Sets up queues for `entries` submissions and twice as many completions. If memory is short,
/// halves the submission queue first, which costs only time, then the completion queue.
pub(super) fn set_up_shorter<T, E>(
    entries: u32,
    mut set_up: impl FnMut(u32, u32) -> Result<T, E>,
    is_of_memory: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let (mut submissions, mut completions) = (entries, entries.saturating_mul(2));
    loop {
        match set_up(submissions, completions) {
            Err(error) if is_of_memory(&error) => {
                if submissions / 2 >= ENTRIES_MIN {
                    submissions /= 2;
                } else if completions / 2 >= COMPLETIONS_MIN {
                    completions /= 2;
                } else {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set-ups tried for `entries`, if memory is short for those that `fits` rejects.
    fn tried(entries: u32, fits: impl Fn(u32, u32) -> bool) -> (Vec<(u32, u32)>, bool) {
        let mut tried = Vec::new();
        let set_up = |submissions, completions| {
            tried.push((submissions, completions));
            if fits(submissions, completions) { Ok(()) } else { Err(12) }
        };
        let made = set_up_shorter(entries, set_up, |errno| *errno == 12);
        (tried, made.is_ok())
    }

    #[test]
    fn submissions_are_shortened_before_completions() {
        let (attempts, made) = tried(256, |submissions, _| submissions <= 64);
        assert_eq!((attempts, made), (vec![(256, 512), (128, 512), (64, 512)], true));
        let (attempts, made) = tried(256, |_, completions| completions <= 128);
        let all = vec![(256, 512), (128, 512), (64, 512), (64, 256), (64, 128)];
        assert_eq!((attempts, made), (all.clone(), true));
        assert_eq!(tried(256, |_, _| false), (all, false));
        assert_eq!(tried(2, |_, _| false), (vec![(2, 4)], false), "never below the least");
    }

    #[test]
    fn another_error_is_returned_at_once() {
        let mut count = 0;
        let refused = |_, _| {
            count += 1;
            Err::<(), _>(1)
        };
        assert_eq!(set_up_shorter(256, refused, |errno| *errno == 12), Err(1));
        assert_eq!(count, 1);
    }
}
